"""Where what the processes of the API count meets: a folder of mapped files, in memory if that can be had.

Who makes one removes it in the end. Who is killed cannot, and memory would fill with what nobody counts in any more: so a
folder is locked for as long as anybody lives who uses it, and whoever makes the next one removes those that are not.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

log = logging.getLogger("poolkeeper.meters")

ENVIRONMENT_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Where prometheus_client looks for the folder."""
PREFIX = "poolkeeper-metrics-"
SHARED_MEMORY = Path("/dev/shm")
USE_LOCK = "used"
MERGE_LOCK = "reading"
"""Locked by who reads the files, and by who puts them together."""
MERGE_LOCK_WITHIN_S = 1.0
"""For how long who puts them together waits for readers; then the files stay as they are, and are counted so."""


def parent_directory() -> Path:
    """Where folders are made: a disk that is full would end every process that counts."""
    return SHARED_MEMORY if SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())


def create_directory(prefix: str = PREFIX) -> Path:
    """A new folder, in use as long as this process lives or one that it forks."""
    remove_unused_directories()
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent_directory()))
    lock = os.open(folder / f"{USE_LOCK}.new", os.O_CREAT | os.O_RDWR, 0o600)  # never closed
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(folder / f"{USE_LOCK}.new", folder / USE_LOCK)  # nobody finds it unlocked
    return folder


def remove_unused_directories() -> None:
    """Remove the folders of ours that nobody uses."""
    for lock in parent_directory().glob(f"{PREFIX}*/{USE_LOCK}"):
        with suppress(OSError):  # somebody else's, or gone, or in use
            held = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
            try:
                if lock.parent.lstat().st_uid == os.getuid():
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(held)


def merge_process(folder: Path, pid: int) -> None:
    """A process counts no more: what it said of the moment is forgotten, what it counted is added to what all who ended did.

    So there are hardly more files than processes, however many have come and gone. Who calls this must not end by it.
    """
    if not folder.is_dir():  # all is over
        return
    try:
        with _merge_lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB, MERGE_LOCK_WITHIN_S) as alone:
            for file in folder.glob(f"gauge_live*_{pid}.db"):
                file.unlink(missing_ok=True)
            for kind in ("counter", "histogram") if alone else ():
                _merge_file(folder / f"{kind}_{pid}.db", folder / f"{kind}_ended.db")
    except OSError as error:  # most of all that memory is full: what is not added stays where it is, and is counted there
        log.warning("what process %s counted is not put together with the rest: %s", pid, error)


def _merge_file(file: Path, sums: Path) -> None:
    """Add what is in a file, which then goes."""
    from prometheus_client import mmap_dict  # not before the folder is set

    numbers: Any = mmap_dict.MmapedDict
    try:
        if file.exists() and file.stat().st_size:
            rows = list(numbers.read_all_values_from_file(str(file)))
            with sums.open("ab") as room:  # or whoever writes into the map of a file for which there is no memory is killed
                os.posix_fallocate(room.fileno(), 0, _used_bytes(file) + _used_bytes(sums))
            kept = numbers(str(sums))
            for key, value, *_ in rows:
                kept.write_value(key, kept.read_value(key)[0] + value, 0.0)
            kept.close()
    except (RuntimeError, ValueError, struct.error):
        log.exception("what process %s counted cannot be read", file.stem.rpartition("_")[2])
    file.unlink(missing_ok=True)


def _used_bytes(file: Path) -> int:
    """The bytes of it in which there is something, its head included."""
    head = file.read_bytes()[:4]
    return max(8, *struct.unpack("i", head)) if head else 8


@contextmanager
def read_lock(folder: Path) -> Iterator[None]:
    """Nobody puts files together meanwhile: what is read is counted once."""
    with _merge_lock(folder, fcntl.LOCK_SH, 0):
        yield


@contextmanager
def _merge_lock(folder: Path, how: int, patience_s: float) -> Iterator[bool]:
    """Whether it could be had in time."""
    lock, until = os.open(folder / MERGE_LOCK, os.O_CREAT | os.O_RDWR, 0o600), time.monotonic() + patience_s
    try:
        while True:
            try:
                fcntl.flock(lock, how)
            except BlockingIOError:
                if time.monotonic() < until:
                    time.sleep(0.01)
                    continue
                yield False
            else:
                yield True
            return
    finally:
        os.close(lock)
