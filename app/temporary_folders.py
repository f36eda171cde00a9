"""Folders for temporary files. A process locks a folder while it uses it. The next start removes the folders without a lock.

A folder is recognised by its name and by its lock file. Folders of other users, folders without that file, and links stay.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PREFIX = "poolkeeper-"
"""The beginning of the names of all folders, those of the client included."""
USE_LOCK = "used"
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class TemporaryFolder:
    """A folder that is in use until the process that created it, and all its forks, have ended."""

    path: Path
    _lock: int

    def remove(self) -> None:
        """Remove the folder with its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def create_folder(purpose: str, directory: Path | None = None) -> TemporaryFolder:
    """Create a folder, by default in the system's directory for temporary files, and remove the folders of killed processes."""
    remove_unused_folders(directory)
    path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-", dir=directory))
    lock = os.open(path / f"{USE_LOCK}.new", os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(path / f"{USE_LOCK}.new", path / USE_LOCK)  # it is locked before it is visible
    return TemporaryFolder(path, lock)


def remove_unused_folders(directory: Path | None = None) -> None:
    """Remove the folders that no process uses, from this directory and from the default ones."""
    for parent in {Path(tempfile.gettempdir()), Path("/tmp"), SHARED_MEMORY, *([directory] if directory else [])}:
        for lock in parent.glob(f"{PREFIX}*/{USE_LOCK}"):
            with suppress(OSError):  # the folder is in use, belongs to another user, is a link, or was removed meanwhile
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
