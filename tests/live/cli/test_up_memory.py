"""`poolkeeperd up` at rest: its memory, and processes that are forks of one and still start, end and are named on their own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.backends import require, short_folder, wait_until
from tests.support.poolkeeperd import Up, descendants, up

MOST_MB = 200
"""Proportional set sizes of all processes together: what ends with the service is freed."""
TITLES = ("gunicorn: master", "gunicorn: worker", "MainProcess", "ForkPoolWorker", "celery beat", "redis.sock")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    require("embedded")
    with short_folder(tmp_path) as made:
        yield made


def test_at_rest_all_processes_together_are_small_and_have_titles(folder: Path) -> None:
    with up(folder, POOLKEEPER_RECONCILE_INTERVAL_S="0.1", POOLKEEPER_API_PROCESSES="2") as here:
        for _ in range(4):  # so that the API, the worker and beat have all been at work
            assert here.ask("POST", "/requests", {"component": "research", "resources": {"gpu": 8}}).status == 201
        wait_until(lambda: all(any(title in line for line in commands(here)) for title in TITLES), "all have titles")
        wait_until(lambda: cpu_ticks(here, "ForkPoolWorker") > 5, "the worker has decided", every_s=0.05)
        memory = {pid: memory_mb(pid) for pid in [here.process.pid, *descendants(here.process.pid)]}
        assert sum(memory.values()) <= MOST_MB, memory


def test_a_fork_has_no_file_of_its_parent_and_the_next_one_starts_like_the_first(folder: Path) -> None:
    with up(folder) as here:
        wait_until(lambda: here.pid_of("celery beat"), "beat runs")
        first = here.pid_of("celery beat")
        assert first
        for process in descendants(here.process.pid):
            if here.pid_of("redis.sock") != process:
                held = {os.path.basename(name) for name in open_files(process)}
                assert not held & {"redis.sock", *lock_names(folder)}, "a lock ends with its process"
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: here.pid_of("celery beat") not in (None, first), "beat runs again", every_s=0.05)
        second = here.pid_of("celery beat")
        assert second
        assert os.getsid(second) == second
        assert memory_mb(second) < 50, "it shares what the first one shared"


def commands(here: Up) -> list[str]:
    """Return the command line of each process of the service."""
    return list(descendants(here.process.pid).values())


def lock_names(folder: Path) -> set[str]:
    """Return the names of the files in the data folder that the service locks."""
    return {path.name for path in (folder / "data").iterdir() if path.suffix == ".lock"}


def open_files(pid: int) -> list[str]:
    """Return the paths of the open files of a process."""
    folder = Path(f"/proc/{pid}/fd")
    return [os.readlink(entry) for entry in folder.iterdir() if entry.is_symlink()]


def cpu_ticks(here: Up, title: str) -> int:
    """Return the processor time that the processes with this title have used."""
    pids = [pid for pid, line in descendants(here.process.pid).items() if title in line]
    return sum(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11]) for pid in pids)


def memory_mb(pid: int) -> float:
    """Return the proportional set size of a process: a page that several processes share counts for each in part."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
