"""The supervisor of processes: growing pauses before a restart, the end of its attempts, and the bounded size of logs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from app.cli import supervisor
from app.cli.log_rotation import LogRotation
from app.cli.supervisor import ManagedProcess, RestartBackoff, RestartsExhausted, Supervisor
from app.domain.errors import StoreUnavailable
from app.store.child_process import ChildProcess
from app.store.embedded_redis import EmbeddedRedis
from tests.support.backends import wait_until

ROTATION = LogRotation(max_bytes=10**6, files_kept=1)
LIVES = "import time; print('here', flush=True); time.sleep(60)"
DIES = "print('first'); print('no such thing', flush=True); raise SystemExit(7)"


def managed_process(name: str, command: list[str], log: Path, rotation: LogRotation | None = None) -> ManagedProcess:
    """Return a process of the service that runs this command."""
    start = partial(ChildProcess, command, log, env={}, death_signal=signal.SIGKILL)
    return ManagedProcess(name, start, log, rotation or ROTATION)


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[list[ManagedProcess]]:
    """Yield the processes `api`, `worker` and `beat`, of which the worker ends at once."""
    programs = {"api": LIVES, "worker": DIES, "beat": LIVES}
    made = [managed_process(name, [sys.executable, "-c", text], tmp_path / f"{name}.log") for name, text in programs.items()]
    yield made
    for part in made:
        part.stop(0)


def test_pauses_grow_and_begin_anew_after_a_process_has_been_up() -> None:
    now = [0.0]
    pauses = RestartBackoff("it", lambda: now[0])
    for expected in (0.5, 1, 2, 4):
        pauses.begin()
        now[0] += 9
        pauses.look()
        now[0] += 20
        assert pauses.end("") == expected
    pauses.begin()
    now[0] += 10
    pauses.look()
    assert [pauses.end("") for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_a_process_that_was_never_up_is_given_up_after_five_ends_in_a_minute() -> None:
    now = [0.0]
    pauses = RestartBackoff("it", lambda: now[0])
    for _ in range(4):
        now[0] += 15
        pauses.end("")
    now[0] += 15
    with pytest.raises(RestartsExhausted, match="it failed 5 times in a row within 60 s; at last it said no"):
        pauses.end("said no")


def test_what_dies_again_and_again_ends_it_all(parts: list[ManagedProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.01)
    messages: list[str] = []
    process_supervisor = Supervisor(parts, None, messages.append)

    def gave_up() -> bool:
        try:
            process_supervisor.watch()
        except RestartsExhausted as why:
            messages.append(str(why))
            return True
        return False

    wait_until(gave_up, "it gives up")
    assert len(messages) == 5
    assert messages[0].startswith("worker ended, exit code 7, ")
    assert messages[0].endswith("last words: no such thing; it is started again in 0.01 s")
    assert messages[-1].startswith("worker failed 5 times in a row within 60 s; at last it ended, exit code 7")
    assert process_supervisor.pids()["worker"] is None
    assert process_supervisor.pids()["api"]
    process_supervisor.stop()
    assert set(process_supervisor.pids().values()) == {None}


def test_once_the_service_is_ready_no_part_ends_the_others(
    parts: list[ManagedProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.01)
    messages: list[str] = []
    process_supervisor = Supervisor(parts, None, messages.append)
    process_supervisor.mark_ready()

    def has_ended_often() -> bool:
        process_supervisor.watch()
        return len(messages) > supervisor.ENDS

    wait_until(has_ended_often, "the worker has ended more often than a part may before")
    assert process_supervisor.pids()["api"]


def test_what_cannot_even_be_started_is_said_and_tried_again(tmp_path: Path) -> None:
    messages: list[str] = []
    managed_process("it", [sys.executable], tmp_path / "no folder" / "it.log").watch(messages.append)
    (line,) = messages
    assert line.startswith("it could not be started: [Errno 2]")
    assert line.endswith("it is started again in 0.5 s")


class Unwell(EmbeddedRedis):
    """One that runs, and says what it is told to say."""

    fault = ""
    alive = True

    def check_health(self) -> None:
        if self.fault:
            raise StoreUnavailable("not_persisting", self.fault)


def test_a_redis_that_cannot_write_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "EXAMINED_EVERY_S", -1)
    messages: list[str] = []
    server = Unwell(tmp_path)
    process_supervisor = Supervisor([], server, messages.append)
    for words in ("", "the disk is full", "the disk is full", "", ""):
        server.fault = words
        process_supervisor.watch()
    assert messages == ["the disk is full", "the embedded Redis works again"]


def test_kill_ends_all_at_once(parts: list[ManagedProcess]) -> None:
    process_supervisor = Supervisor(parts, None, lambda _: None)
    with suppress(RestartsExhausted):
        process_supervisor.watch()
    process_supervisor.kill()
    wait_until(lambda: not any(process_supervisor.pids().values()), "all have ended")


def test_a_log_does_not_grow_for_ever(tmp_path: Path) -> None:
    log, older = tmp_path / "it.log", tmp_path / "it.log.1"
    log.write_text("of the run before\n")
    script = "print('x' * 2000, flush=True); " + LIVES
    part = managed_process("it", [sys.executable, "-c", script], log, LogRotation(1000, 2))
    assert (log.exists(), older.read_text()) == (False, "of the run before\n")
    try:
        part.watch(lambda _: None)
        wait_until(lambda: "here" in log.read_text(), "it has written")
        part.rotate_log()
        assert log.read_text() == ""
        assert older.read_text().endswith("here\n")
        assert (tmp_path / "it.log.2").read_text() == "of the run before\n"
    finally:
        part.stop(0)
