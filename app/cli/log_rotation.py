"""The rotation of the log files that `poolkeeperd up` keeps for its processes.

All processes that write to a file keep it open. So the file is copied and truncated, as by `copytruncate` of logrotate. A line
that is written between the two may be lost.
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
    """The rotation of a log file. The newest of its old files is `api.log.1`."""

    max_bytes: int
    """The largest size of the file in bytes; 0: no limit."""
    files_kept: int
    """The most old files; 0: none is kept."""

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
        """Copy and truncate the file if it is too large. If the disk is full, it is truncated, and its content is lost."""
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
        """Rename each old file to the next number. The last one is replaced."""
        for number in range(self.files_kept - 1, 0, -1):
            if _old_file(log, number).exists():
                _old_file(log, number).replace(_old_file(log, number + 1))


def _old_file(log: Path, number: int) -> Path:
    return log.with_name(f"{log.name}.{number}")
