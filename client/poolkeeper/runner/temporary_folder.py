"""A folder for temporary files. `run` locks its folder while it uses it; the next `run` removes the folders without a lock.

It does not remove a link, a folder of another user, or a folder without a lock file.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PREFIX = "poolkeeper-run-"
USE_LOCK = "used"
"""The name of the lock file. The service uses the same name, and also removes folders of `run` that are not in use."""


@dataclass(frozen=True)
class TemporaryFolder:
    """A folder that is in use as long as this process lives."""

    path: Path
    _lock: int

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def create_folder() -> TemporaryFolder:
    """Create a folder, and remove the folders of killed processes."""
    remove_unused_folders()
    path = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = os.open(path / f"{USE_LOCK}.new", os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(path / f"{USE_LOCK}.new", path / USE_LOCK)  # the file gets its name after it is locked
    return TemporaryFolder(path, lock)


def remove_unused_folders() -> None:
    """Remove the folders that no process uses."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{USE_LOCK}"):
        with suppress(OSError):  # in use, of another user, a link, or removed meanwhile
            _remove_if_unused(lock.parent)


def _remove_if_unused(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(opened).st_uid != os.getuid():
            return
        lock = os.open(USE_LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=opened)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
    finally:
        os.close(opened)
