"""The directory with the counters of all API processes: mapped files, in shared memory if there is any.

The process that creates a directory removes it at its end. If the process is killed, the next start removes the directory
(`app/temporary_folders.py`).
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app import temporary_folders
from app.temporary_folders import create_folder

log = logging.getLogger("poolkeeper.metrics")

ENVIRONMENT_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names the directory for prometheus_client."""
PURPOSE = "metrics"
MERGE_LOCK = "reading"
"""The file that is locked while files are read or merged."""
MERGE_LOCK_WITHIN_S = 1.0
"""Seconds that a merge waits for readers. After that the file stays, and is read on its own."""


def parent_directory() -> Path:
    """Return the parent of the directories. It is in memory if possible: a full disk would end every process that counts."""
    memory = temporary_folders.SHARED_MEMORY
    return memory if memory.is_dir() and os.access(memory, os.W_OK) else Path(tempfile.gettempdir())


def create_directory(purpose: str = PURPOSE) -> Path:
    """Create a directory that is in use as long as this process or one of its children lives."""
    return create_folder(purpose, parent_directory()).path


def merge_process(directory: Path, pid: int) -> None:
    """Merge the counters of an ended process into the sums of all ended processes, and remove its gauges.

    So there are hardly more files than processes. Errors are logged only, as they must not end the server that calls this.
    """
    if not directory.is_dir():  # the server has ended
        return
    try:
        with _merge_lock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB, MERGE_LOCK_WITHIN_S) as locked:
            for file in directory.glob(f"gauge_live*_{pid}.db"):
                file.unlink(missing_ok=True)
            for kind in ("counter", "histogram") if locked else ():
                _merge_file(directory / f"{kind}_{pid}.db", directory / f"{kind}_ended.db")
    except OSError as error:  # mostly full memory: the file stays, and is read on its own
        log.warning("the counters of process %s could not be merged: %s", pid, error)


def _merge_file(file: Path, sums: Path) -> None:
    """Add the values of a file to the sums, and remove the file."""
    from prometheus_client import mmap_dict  # not before the directory is set

    mapped: Any = mmap_dict.MmapedDict
    try:
        if file.exists() and file.stat().st_size:
            rows = list(mapped.read_all_values_from_file(str(file)))
            with sums.open("ab") as target:  # a write to a map without memory behind it would kill the process
                os.posix_fallocate(target.fileno(), 0, _used_bytes(file) + _used_bytes(sums))
            totals = mapped(str(sums))
            for key, value, *_ in rows:
                totals.write_value(key, totals.read_value(key)[0] + value, 0.0)
            totals.close()
    except (RuntimeError, ValueError, struct.error):
        log.exception("the counters of process %s cannot be read", file.stem.rpartition("_")[2])
    file.unlink(missing_ok=True)


def _used_bytes(file: Path) -> int:
    """Return the number of bytes in use, with the head of the file."""
    head = file.read_bytes()[:4]
    return max(8, *struct.unpack("i", head)) if head else 8


@contextmanager
def read_lock(directory: Path) -> Iterator[None]:
    """Keep merges away while files are read, so that no value is counted twice."""
    with _merge_lock(directory, fcntl.LOCK_SH, 0):
        yield


@contextmanager
def _merge_lock(directory: Path, how: int, within_s: float) -> Iterator[bool]:
    """Hold the lock; yield False if it could not be taken in time."""
    lock, until = os.open(directory / MERGE_LOCK, os.O_CREAT | os.O_RDWR, 0o600), time.monotonic() + within_s
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
