"""The rotation of the log files that `poolkeeperd up` keeps for its processes.

All processes behind a file have it open for appending, and none opens it anew. So the file is copied and truncated, as by
`copytruncate` of logrotate; a line that is written between the two may be lost.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.settings import Settings


@dataclass(frozen=True, slots=True)
class LogRotation:
    """The limit of the size of a log file, and of the number of its old files: `api.log.1` is the newest of them."""

    max_bytes: int
    """0: no limit."""
    files_kept: int

    @classmethod
    def of(cls, settings: Settings) -> LogRotation:
        """Return the rotation of these settings."""
        return cls(settings.log_file_bytes, settings.log_files_kept)

    def begin(self, log: Path) -> None:
        """Rename the log of the previous run to the newest old file. Call it before a process opens the log."""
        if log.exists():
            self._shift(log)
            if self.files_kept:
                log.replace(_old_file(log, 1))
            else:
                log.unlink()

    def rotate(self, log: Path) -> None:
        """Begin the file anew if it is too large. If the disk is full, its content is lost and the file is truncated."""
        with suppress(OSError):
            if self.max_bytes and log.stat().st_size > self.max_bytes:
                try:
                    self._shift(log)
                    if self.files_kept:
                        shutil.copyfile(log, _old_file(log, 1))
                        shutil.copymode(log, _old_file(log, 1))
                finally:
                    os.truncate(log, 0)

    def _shift(self, log: Path) -> None:
        """Rename each old file to the next number; the last one is replaced."""
        for number in range(self.files_kept - 1, 0, -1):
            if _old_file(log, number).exists():
                _old_file(log, number).replace(_old_file(log, number + 1))


def _old_file(log: Path, number: int) -> Path:
    return log.with_name(f"{log.name}.{number}")
