"""A fork of `poolkeeperd up` at its start: what goes wrong there leaves no open file and is told in its log alone."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from app.cli.preloaded_process import PreloadedProcess
from app.cli.up import stopping
from tests.support.backends import wait_until

QUICK_MODULE = "this"


def fork(folder: Path) -> PreloadedProcess:
    """Return a fork that ends soon."""
    return PreloadedProcess(QUICK_MODULE, [], folder / "fork.log", folder)


def test_a_fork_that_cannot_be_made_leaves_no_open_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError("no more processes")

    before = len(os.listdir("/dev/fd"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "fork", refuse)
        for _ in range(3):
            with pytest.raises(BlockingIOError):
                fork(tmp_path)
    assert len(os.listdir("/dev/fd")) == before


def test_the_exit_code_is_known_if_the_parent_was_started_with_sigchld_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with stopping():
            process = fork(tmp_path)
            wait_until(lambda: not process.alive, "the fork ends")
            assert process.exit_code == 0
        assert signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_signal_before_the_fork_has_its_session_is_told_in_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    make_session = os.setsid

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        make_session()

    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    monkeypatch.setattr(os, "setsid", interrupt)
    process = fork(tmp_path)
    wait_until(lambda: not process.alive, "the fork ends")
    assert "KeyboardInterrupt" in process.output_tail()
    assert capfd.readouterr().err == ""
