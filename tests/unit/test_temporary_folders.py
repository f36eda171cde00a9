"""Folders for temporary files: the next start removes those of killed processes, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app import temporary_folders
from app.temporary_folders import USE_LOCK, TemporaryFolder, create_folder, remove_unused_folders


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory for temporary files; the other ones are empty."""
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(made))
    monkeypatch.setattr(temporary_folders, "SHARED_MEMORY", tmp_path / "none")
    return made


def kill(folder: TemporaryFolder) -> Path:
    """Do to a folder what the end of its process does: the lock is released, and the files stay."""
    (folder.path / "file").touch()
    os.close(folder._lock)
    return folder.path


def test_a_folder_of_a_killed_process_is_removed_by_the_next_start(directory: Path) -> None:
    left, used = kill(create_folder("socket")), create_folder("trial")
    assert left.name.startswith("poolkeeper-socket-")
    made = create_folder("metrics")
    assert {path.name for path in directory.iterdir()} == {used.path.name, made.path.name}
    used.remove()
    made.remove()
    assert list(directory.iterdir()) == []


def test_a_folder_in_another_directory_is_removed_too(directory: Path, tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    left = kill(create_folder("metrics", memory))
    create_folder("metrics", memory).remove()
    assert not left.exists()


def test_what_is_not_a_folder_of_ours_stays(directory: Path, tmp_path: Path) -> None:
    for name in ("poolkeeper-without-lock", "poolkeeper-linked-lock", "other"):
        (directory / name).mkdir()
    (directory / "other" / USE_LOCK).touch()
    (tmp_path / "kept").touch()
    (directory / "poolkeeper-linked-lock" / USE_LOCK).symlink_to(tmp_path / "kept")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / USE_LOCK).touch()
    (directory / "poolkeeper-link").symlink_to(elsewhere)
    (directory / "poolkeeper-file").touch()
    before = sorted(tmp_path.rglob("*"))
    remove_unused_folders()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_of_another_user_stays(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = kill(create_folder("socket"))
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    remove_unused_folders()
    assert left.exists()
    monkeypatch.undo()


def test_a_link_in_a_folder_is_not_followed(directory: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    left = kill(create_folder("socket"))
    (left / "link").symlink_to(kept)
    remove_unused_folders()
    assert (left.exists(), (kept / "file").exists()) == (False, True)
