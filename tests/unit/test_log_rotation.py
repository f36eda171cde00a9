"""Log files of `poolkeeperd up`: a large one begins anew, and a bounded number of old ones is kept."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from app.cli.log_rotation import LogRotation


def files(folder: Path) -> dict[str, str]:
    """Return the text of each file."""
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_a_large_file_begins_anew_and_the_oldest_is_dropped(tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    for number in range(1, 5):
        log.write_text(f"{number}" * 11)
        LogRotation(10, 2).rotate(log)
    assert files(tmp_path) == {"api.log": "", "api.log.1": "4" * 11, "api.log.2": "3" * 11}


def test_processes_that_have_the_file_open_go_on_at_its_begin(tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    writers = [os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for _ in range(3)]
    for writer in writers:
        os.write(writer, b"before\n")
    LogRotation(10, 1).rotate(log)
    for writer in writers:
        os.write(writer, b"after\n")
        os.close(writer)
    assert files(tmp_path) == {"api.log": "after\n" * 3, "api.log.1": "before\n" * 3}


def test_an_old_file_is_as_private_as_the_new_one(tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    log.write_text("x" * 11)
    log.chmod(0o600)
    LogRotation(10, 1).rotate(log)
    assert (tmp_path / "api.log.1").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("max_bytes", [0, 11])
def test_a_file_within_the_limit_stays(tmp_path: Path, max_bytes: int) -> None:
    (tmp_path / "api.log").write_text("x" * 11)
    LogRotation(max_bytes, 2).rotate(tmp_path / "api.log")
    LogRotation(max_bytes, 2).rotate(tmp_path / "absent.log")
    assert files(tmp_path) == {"api.log": "x" * 11}


def test_without_old_files_the_content_is_dropped(tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    log.write_text("x" * 11)
    LogRotation(10, 0).rotate(log)
    assert files(tmp_path) == {"api.log": ""}
    LogRotation(10, 0).begin(log)
    assert files(tmp_path) == {}


def test_a_new_run_begins_a_new_file(tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    for run in ("first", "second", "third"):
        LogRotation(10, 2).begin(log)
        log.write_text(run)
    assert files(tmp_path) == {"api.log": "third", "api.log.1": "second", "api.log.2": "first"}


def test_on_a_full_disk_the_file_is_truncated_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    (tmp_path / "api.log").write_text("x" * 11)
    LogRotation(10, 2).rotate(tmp_path / "api.log")
    assert files(tmp_path) == {"api.log": ""}
