"""Parts of `poolkeeper run` without a process: checkpoint files, variables, messages and signals."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest
from poolkeeper import Client
from poolkeeper.cli.amount_options import edit_distance
from poolkeeper.heartbeats import clock_skew
from poolkeeper.models import Request
from poolkeeper.runner import checkpoint_files
from poolkeeper.runner import process_run as turns
from poolkeeper.runner import signals as runner_signals
from poolkeeper.runner.checkpoint_files import CheckpointFiles, CheckpointReport, path_for, write_report
from poolkeeper.runner.command_env import amount_variable, command_environment
from poolkeeper.runner.progress import Progress
from poolkeeper.runner.signals import Interrupted, SignalHandler
from poolkeeper.runner.temporary_folder import USE_LOCK
from poolkeeper.runner.waiting_line import describe_positions, ordinal

from app.settings import Settings
from tests.support.signals import another_thread_gets

FULL = 65536
"""The bytes that an empty pipe takes."""


@pytest.fixture
def box() -> CheckpointFiles:
    return CheckpointFiles()


class TestFiles:
    def test_what_is_written_whole_is_read_at_once_and_once(self, box: CheckpointFiles) -> None:
        write_report(box.path, CheckpointReport("completed", "step 7"))
        assert box.read_new() == [CheckpointReport("completed", "step 7")]
        assert box.read_new() == []
        box.close()
        assert not box.folder.exists()

    def test_the_folder_of_a_run_that_was_killed_is_removed_by_the_next(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        linked = tmp_path / "elsewhere"
        linked.mkdir()
        (linked / USE_LOCK).touch()
        (tmp_path / "poolkeeper-run-link").symlink_to(linked)
        killed, living = CheckpointFiles(), CheckpointFiles()
        os.close(killed._temporary_folder._lock)
        CheckpointFiles().close()
        assert (killed.folder.exists(), living.folder.exists(), (linked / USE_LOCK).exists()) == (False, True, True)
        living.close()

    def test_each_state_has_its_file_and_the_checkpoint_is_read_last(self, box: CheckpointFiles) -> None:
        for state in ("completed", "failed", "progress"):
            write_report(box.path, CheckpointReport(state))
        assert box.read_new() == [CheckpointReport("progress"), CheckpointReport("failed"), CheckpointReport("completed")]
        box.close()

    def test_what_is_still_being_written_is_left_alone_until_it_stands_still(self, box: CheckpointFiles) -> None:
        with box.path.open("w") as file:
            assert box.read_new() == [], "it is there, and empty"
            file.write("step")
            file.flush()
            assert box.read_new() == []
            file.write(" 7\n")
        assert box.read_new() == [CheckpointReport("completed", "step 7")]
        box.close()

    def test_an_empty_file_counts_after_a_moment(self, box: CheckpointFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [100.0]
        monkeypatch.setattr("time.monotonic", lambda: now[0])
        box.path.touch()
        assert box.read_new() == []
        now[0] += checkpoint_files.SETTLED_S
        assert box.read_new() == [CheckpointReport("completed")]
        box.close()

    def test_what_has_ended_writes_no_more(self, box: CheckpointFiles) -> None:
        box.path.write_text("half")
        assert box.read_new(has_ended=True) == [CheckpointReport("completed", "half")]
        box.close()

    def test_only_the_first_line_counts_and_any_bytes_are_read(self, box: CheckpointFiles) -> None:
        box.path.write_bytes(b"  caf\xe9 \r\nmore\n")
        assert box.read_new() == [CheckpointReport("completed", "caf\ufffd")]
        box.close()

    def test_what_is_no_file_is_passed_over(self, box: CheckpointFiles) -> None:
        box.path.mkdir()
        assert box.read_new(has_ended=True) == []
        box.close()

    def test_a_pipe_in_its_place_delays_no_reader(self, box: CheckpointFiles) -> None:
        os.mkfifo(box.path)
        assert box.read_new() == box.read_new(has_ended=True) == []
        box.close()

    def test_the_folder_never_looks_forgotten(self, box: CheckpointFiles) -> None:
        os.utime(box.folder, (0, 0))
        box.read_new()
        assert box.folder.stat().st_mtime > 0, "or a cleanup of old files removes it during a long training"
        box.close()

    def test_without_a_listener(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            write_report(tmp_path / "gone" / "checkpoint", CheckpointReport("completed"))
        (tmp_path / "checkpoint").mkdir()
        with pytest.raises(OSError, match="directory"):
            write_report(tmp_path / "checkpoint", CheckpointReport("completed"))
        assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"], "nothing half is left"

    def test_places(self) -> None:
        assert [path_for(Path("/a/checkpoint"), state).name for state in checkpoint_files.SUFFIXES] == [
            "checkpoint.progress",
            "checkpoint.failed",
            "checkpoint",
        ]


class TestVariables:
    REQUEST = Request("r1", "allocated", resources={"gpu": 2, "a100.80-gb": 1, "port": 3, "chunk": 1}, pool=None, fence=7)

    def variables(self, **before: str) -> dict[str, str]:
        client = Client("http://127.0.0.1:1", workspace="w")
        return command_environment(before, client, self.REQUEST, Path("/x/checkpoint"), resume=True, reference="s3://x")

    def test_those_of_another_run_around_it_are_not_its_own(self) -> None:
        output = self.variables(POOLKEEPER_AMOUNT_NODE="4", POOLKEEPER_POOL="outer", POOLKEEPER_TOKEN="mine", PATH="/bin")
        assert "POOLKEEPER_AMOUNT_NODE" not in output
        assert (output["POOLKEEPER_POOL"], output["POOLKEEPER_TOKEN"], output["PATH"]) == ("", "mine", "/bin")
        assert (output["POOLKEEPER_RESUME"], output["POOLKEEPER_CHECKPOINT_REFERENCE"]) == ("1", "s3://x")
        assert output["POOLKEEPER_RESOURCES"] == "gpu=2,a100.80-gb=1,port=3,chunk=1"
        assert output["POOLKEEPER_AMOUNT_A100_80_GB"] == "1"

    def test_none_of_them_is_taken_for_a_setting_of_the_service(self) -> None:
        names = Settings.read(environ={})
        assert Settings.read(environ=self.variables()) == names

    def test_a_reference_that_no_variable_can_hold(self) -> None:
        client = Client("http://127.0.0.1:1", workspace="w")
        output = command_environment({}, client, self.REQUEST, Path("/x"), resume=True, reference="step\0 7")
        assert output["POOLKEEPER_CHECKPOINT_REFERENCE"] == "step 7"

    def test_names(self) -> None:
        assert amount_variable("step_run") == "POOLKEEPER_AMOUNT_STEP_RUN"


@pytest.mark.parametrize(
    ("dated", "ahead_s"),
    [
        ("Tue, 14 Nov 2023 22:13:20 GMT", 0),
        ("Tue, 14 Nov 2023 22:13:19 GMT", 0.4),
        ("Tue, 14 Nov 2023 22:12:20 GMT", 59.4),
        ("Tue, 14 Nov 2023 22:14:20 GMT", -60.6),
        ("yesterday", 0),
        (None, 0),
    ],
)
def test_how_far_a_clock_is_ahead_of_the_servers(dated: str | None, ahead_s: float) -> None:
    now = datetime(2023, 11, 14, 22, 13, 20, 400_000, UTC)
    assert clock_skew(dated, now) == timedelta(seconds=ahead_s)


def test_unread_output_is_written_as_soon_as_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    call, says = os.pipe()
    os.set_blocking(says, False)
    assert os.write(says, b"x" * 1_000_000) == FULL
    os.set_blocking(says, True)
    with open(says, "w") as stderr, open(call, "rb") as reader:
        monkeypatch.setattr(sys, "stderr", stderr)
        showing = Progress()
        for number in range(3):
            showing.warn(f"word {number}")
        showing.flush()
        assert reader.read(FULL) == b"x" * FULL, "no write waits for a reader"
        showing.flush(5)
        assert reader.read(45) == b"".join(b"poolkeeper: word %d\n" % number for number in range(3))[:45]


def test_words_for_people() -> None:
    assert [ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th",
    ]  # fmt: skip
    assert describe_positions({}) == "waiting"
    assert (
        describe_positions({"gpus": 3, "spare": 1}) == "waiting in gpus: 3rd in the queue, 2 ahead; in spare: 1st in the queue"
    )


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [("gpu", "gpu", 0), ("componnent", "component", 1), ("laese", "lease", 1), ("gpu", "cpu", 1), ("time", "walltime", 4)],
)
def test_letters_apart(first: str, second: str, apart: int) -> None:
    assert edit_distance(first, second) == edit_distance(second, first) == apart


def test_what_cannot_be_killed_is_waited_for_without_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    command = Mock(is_gone=False, code=None, stopped_by=None)
    monkeypatch.setattr(turns, "GuardedProcess", lambda *_, **__: command)
    context = Mock(signals=Mock(pending=deque([signal.SIGTERM])), checkpoint_files=Mock(read_new=lambda **_: []))
    context.wakeup.wait = lambda seconds, _: waits.append(seconds)
    command.read_reports.side_effect = lambda: setattr(command, "is_gone", len(waits) == 3)
    heartbeats = Mock(loss_reason=None, left=False, suspected=False, directive="continue", refusal=None, must_leave=False)
    turns.ProcessRun(turns.RunOptions(["sleep"], grace_s=0), context, {}, heartbeats, Mock(unreported=None))()
    assert command.kill.called
    assert waits[1:] == [turns.POLL_S] * 2


class Finalized(io.RawIOBase):
    """An object whose finalizer gets a Ctrl-C, like that of a response that Python closes."""

    def close(self) -> None:
        if not self.closed:
            super().close()
            signal.raise_signal(signal.SIGINT)


@pytest.fixture
def mask() -> Iterator[None]:
    """Restore the mask of blocked signals afterwards, as processes inherit it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.usefixtures("mask")
def test_ctrl_c_just_as_something_is_finalized_is_raised_again_until_it_gets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    with SignalHandler() as interruptions:
        waiting = Waiting(interruptions)
        with pytest.raises(Interrupted) as raised:
            waiting(10)
        assert (waiting.went_on, raised.value.code, list(interruptions.pending)) == (True, 130, [])
        monkeypatch.setattr(runner_signals, "RERAISE_AFTER_S", 60.0)  # so that the block has ended before
        waiting(0)
        assert list(interruptions.pending) == [signal.SIGINT], "what was dropped just before the end is looked at afterwards"
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


@pytest.mark.usefixtures("mask")
def test_a_signal_that_does_not_interrupt_a_call_of_run_is_raised() -> None:
    with SignalHandler() as signals:
        began_s = time.monotonic()
        with pytest.raises(Interrupted) as raised, another_thread_gets(signal.SIGTERM), signals.raise_on_signal():
            threading.Event().wait(20)
        waited_s = time.monotonic() - began_s
    assert raised.value.signum == signal.SIGTERM
    assert waited_s < 10
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


class Waiting:
    """A client whose wait is interrupted while a response is finalized."""

    def __init__(self, interruptions: SignalHandler) -> None:
        self._interruptions, self.went_on = interruptions, False

    def __call__(self, seconds: float) -> None:
        with self._interruptions.raise_on_signal():
            Finalized()
            self.went_on = True
            threading.Event().wait(seconds)
