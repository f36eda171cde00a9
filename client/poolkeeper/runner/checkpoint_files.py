"""Checkpoint reports of the command. They are files in a folder of `run`, so that a shell script can write them without a
network.

The file `checkpoint` reports that the work is saved. Its first line, if any, is the reference from which the work can resume.
`checkpoint.progress` reports that the work is being saved, `checkpoint.failed` that it cannot be saved. A file is removed when
it is read, so the next file is a new report.

A file may be seen before it is complete. So a file without a final line break is read only after it has not changed for
`SETTLED_S`. `write_report` writes a file atomically and with a line break. Such a file is read at once.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from poolkeeper.runner.temporary_folder import create_folder

FILE_VARIABLE = "POOLKEEPER_CHECKPOINT_FILE"
SUFFIXES = {"progress": ".progress", "failed": ".failed", "completed": ""}
"""State of a checkpoint → suffix of its file, in the order of reading."""
SETTLED_S = 0.2
MAX_BYTES = 4096
"""The most bytes of a file that are read."""


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """One report of the command."""

    state: str
    reference: str | None = None


class CheckpointFiles:
    """The folder of the reports."""

    def __init__(self) -> None:
        self._temporary_folder = create_folder()
        self.folder = self._temporary_folder.path
        self.path = self.folder / "checkpoint"
        self._unfinished: dict[str, tuple[object, float]] = {}

    def read_new(self, *, has_ended: bool = False) -> list[CheckpointReport]:
        """Return the new reports. Once the command `has_ended`, every file counts as complete."""
        with suppress(OSError):
            os.utime(self.folder)  # so that a cleaner of old temporary files does not remove the folder during a long run
        return [report for state in SUFFIXES if (report := self._read(state, has_ended=has_ended))]

    def clear(self) -> None:
        """Remove the reports of the previous process, before a new one starts."""
        self.read_new(has_ended=True)

    def close(self) -> None:
        """Remove the folder."""
        self._temporary_folder.remove()

    def _read(self, state: str, *, has_ended: bool) -> CheckpointReport | None:
        path, private_path = path_for(self.path, state), self.folder / "taken"
        try:
            status = path.stat()
            if not (S_ISREG(status.st_mode) and (has_ended or self._is_complete(path, status))):
                return None
            os.rename(path, private_path)
            with private_path.open("rb") as file:
                content = file.read(MAX_BYTES)
        except OSError:
            return None
        self._unfinished.pop(path.name, None)
        lines = content.decode(errors="replace").splitlines()
        return CheckpointReport(state, (lines[0].strip() if lines else "") or None if state == "completed" else None)

    def _is_complete(self, path: Path, status: os.stat_result) -> bool:
        with path.open("rb") as file:
            if file.read(MAX_BYTES).endswith(b"\n"):
                return True
        now, identity = time.monotonic(), (status.st_ino, status.st_size, status.st_mtime_ns)
        previous, since = self._unfinished.get(path.name, (None, now))
        if previous != identity:
            since = now
        self._unfinished[path.name] = identity, since
        return now - since >= SETTLED_S


def path_for(path: Path, state: str) -> Path:
    """Return the path of the report of this state, next to the path that the variable names."""
    return path.with_name(path.name + SUFFIXES[state])


def write_report(path: Path, report: CheckpointReport) -> None:
    """Write the report atomically. Raise OSError if the folder is gone."""
    file, name = tempfile.mkstemp(dir=path.parent, prefix="being-written-")
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(f"{report.reference or ''}\n".encode(errors="surrogateescape"))
        os.rename(name, path_for(path, report.state))
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
