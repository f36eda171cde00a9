"""What the command says of its checkpoints: files in a folder of `run`'s own, so that a shell can do it, and no network.

`checkpoint` says that the work is saved; its first line, if any, is the reference to go on from. `checkpoint.progress` says
that it is being saved, `checkpoint.failed` that it cannot be. Each is taken away once it was read, so the next one is news
again.

A file may be seen before it was written to the end. So what does not end with a line break is only read once it has not
changed for `SETTLED_S`; `write` puts a file there whole, and that is read at once.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

VARIABLE = "POOLKEEPER_CHECKPOINT_FILE"
ENDINGS = {"progress": ".progress", "failed": ".failed", "completed": ""}
"""State of a checkpoint → what its file's name ends with, in the order in which they are read."""
SETTLED_S = 0.2
LONGEST = 4096
"""Bytes of a file that are read."""


@dataclass(frozen=True, slots=True)
class Word:
    """One thing the command said."""

    state: str
    reference: str | None = None


class Checkpoints:
    """The folder, and what is new in it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="poolkeeper-run-"))
        self.path = self.folder / "checkpoint"
        self._seen: dict[str, tuple[object, float]] = {}

    def take(self, *, ended: bool = False) -> list[Word]:
        """What was said since; once the command has `ended` nothing is still being written."""
        with suppress(OSError):
            os.utime(self.folder)  # else whoever clears away what is old takes it from under a long work
        return [word for state in ENDINGS if (word := self._take(state, ended=ended))]

    def clear(self) -> None:
        """For a new start of the command: what the last one said is past."""
        self.take(ended=True)

    def close(self) -> None:
        """The folder is gone."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _take(self, state: str, *, ended: bool) -> Word | None:
        path, taken = place(self.path, state), self.folder / "taken"
        try:
            status = path.stat()
            if not (S_ISREG(status.st_mode) and (ended or self._is_whole(path, status))):
                return None
            os.rename(path, taken)
            with taken.open("rb") as file:
                said = file.read(LONGEST)
        except OSError:
            return None
        self._seen.pop(path.name, None)
        lines = said.decode(errors="replace").splitlines()
        return Word(state, (lines[0].strip() if lines else "") or None if state == "completed" else None)

    def _is_whole(self, path: Path, status: os.stat_result) -> bool:
        with path.open("rb") as file:
            if file.read(LONGEST).endswith(b"\n"):
                return True
        now, looks = time.monotonic(), (status.st_ino, status.st_size, status.st_mtime_ns)
        before, since = self._seen.get(path.name, (None, now))
        if before != looks:
            since = now
        self._seen[path.name] = looks, since
        return now - since >= SETTLED_S


def place(path: Path, state: str) -> Path:
    """Where the command says this, if `path` is what the variable names."""
    return path.with_name(path.name + ENDINGS[state])


def write(path: Path, word: Word) -> None:
    """Say it, whole at once; OSError if nobody listens there any more."""
    file, name = tempfile.mkstemp(dir=path.parent, prefix="being-written-")
    try:
        with os.fdopen(file, "wb") as half:
            half.write(f"{word.reference or ''}\n".encode(errors="surrogateescape"))
        os.rename(name, place(path, word.state))
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
