"""The folder in which processes share their counters: the last process removes it, however that process ended."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app import temporary_folders
from app.api.metrics import multiprocess_dir
from app.api.metrics.process_metrics import MultiprocessCollector
from app.cli.process_commands import ROOT

USER = """
import os, sys, time
from pathlib import Path
from app import temporary_folders
from app.api.metrics import multiprocess_dir
temporary_folders.SHARED_MEMORY = Path(sys.argv[1])
print(multiprocess_dir.create_directory(), flush=True)
if os.fork():
    os.kill(os.getpid(), 9)  # as a master is that leaves a process behind
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the shared memory of the machine by a folder of the test."""
    monkeypatch.setattr(temporary_folders, "SHARED_MEMORY", tmp_path)
    return tmp_path


def test_a_folder_is_kept_while_a_process_uses_it_and_removed_afterwards(memory: Path) -> None:
    user = subprocess.Popen(
        [sys.executable, "-c", USER, str(memory)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert user.stdout
    assert user.stdin
    folder = Path(user.stdout.readline().strip())
    assert user.wait(10) == -9
    (folder / "counter_1.db").touch()
    temporary_folders.remove_unused_folders(memory)
    assert (folder / "counter_1.db").exists(), "the one that it forked still counts"
    user.stdin.close()
    user.stdout.read()  # until that has ended, too
    user.stdout.close()
    assert multiprocess_dir.create_directory().parent == memory
    assert not folder.exists()


COUNTS = """
import os
from prometheus_client import Counter, Gauge, Histogram
Counter("seen", "-").inc(3)
Histogram("took", "-", buckets=(1,)).observe(0.5)
Gauge("held", "-", multiprocess_mode="livesum").set(7)
print(os.getpid())
"""


def counting(folder: Path) -> int:
    """Count in the folder from a process that ends, and return the count."""
    environ = {**os.environ, multiprocess_dir.ENVIRONMENT_VARIABLE: str(folder)}
    done = subprocess.run([sys.executable, "-c", COUNTS], env=environ, capture_output=True, text=True, check=True, timeout=30)
    return int(done.stdout)


def counter_values(folder: Path) -> dict[str, float]:
    """Return the values that all processes have counted."""
    rows = [row for family in MultiprocessCollector(folder).collect() for row in family.samples]
    return {row.name + row.labels.get("le", ""): row.value for row in rows}


def test_what_processes_counted_that_have_ended_is_in_one_place(memory: Path) -> None:
    for number in range(1, 4):
        pid = counting(memory)
        sums = {"seen_total": 3.0 * number, "took_count": number, "took_sum": 0.5 * number, "took_bucket1.0": number}
        sums |= {"took_bucket+Inf": number}
        assert counter_values(memory) == sums | {"held": 7}
        multiprocess_dir.merge_process(memory, pid)
        assert counter_values(memory) == sums
    assert {file.name for file in memory.glob("*.db")} == {"counter_ended.db", "histogram_ended.db"}


def test_where_memory_is_full_what_was_counted_stays_where_it_is(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    pid = counting(memory)
    before = {name: value for name, value in counter_values(memory).items() if name != "held"}
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)  # without which a process that writes to it is killed
        multiprocess_dir.merge_process(memory, pid)
    assert counter_values(memory) == before
    multiprocess_dir.merge_process(memory, counting(memory))
    assert counter_values(memory)["seen_total"] == 6


def test_a_damaged_file_ends_no_process(memory: Path, caplog: pytest.LogCaptureFixture) -> None:
    pid = counting(memory)
    file = memory / f"counter_{pid}.db"
    file.write_bytes(file.read_bytes()[:8] + b"\xff\xff\xff\x7f" + file.read_bytes()[12:])
    multiprocess_dir.merge_process(memory, pid)
    assert f"the counters of process {pid} cannot be read" in caplog.text
    assert "seen_total" not in counter_values(memory), "and the page is whole again"


def test_no_files_are_merged_during_a_read(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocess_dir, "MERGE_LOCK_WITHIN_S", 0.02)
    for name in ("counter_1.db", "gauge_livesum_1.db"):
        (memory / name).touch()
    with multiprocess_dir.read_lock(memory):
        multiprocess_dir.merge_process(memory, 1)
        assert {file.name for file in memory.glob("*.db")} == {"counter_1.db"}
    multiprocess_dir.merge_process(memory, 1)
    assert not list(memory.glob("*.db"))
