"""A client killed between any two of its calls loses nothing: the next client finishes its work, and a repeated change gives
the reply of the first.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from app.store.connection import RedisClient
from app.store.keys import key
from tests.live.faults.change_sequence import CHANGES, WORKSPACE, read_state, repeat_change, run_changes, set_up
from tests.live.faults.interrupted_states import StateRecorder
from tests.live.races import settled_invariants
from tests.live.races.processes import CONTEXT, TIMES
from tests.support.servers import Servers
from tests.support.world import World


def run(client: RedisClient, diary: Path, last: int, *, sent: bool) -> int | None:
    """Run the sequence in a process that dies at the given call; return its exit code."""
    path = client.connection_pool.connection_kwargs["path"]  # type: ignore[union-attr]
    process = CONTEXT.Process(target=run_changes, args=(path, diary, last, sent))
    process.start()
    process.join(60)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError("the story does not end")
    return process.exitcode


def whole(client: RedisClient, diary: Path) -> tuple[int, dict[str, Any]]:
    """Run the sequence without a kill; return its number of calls and the final state."""
    for _ in range(2):  # the first time the server does not know all of the scripts yet, which takes calls of its own
        set_up(client)
        assert run(client, diary, 0, sent=False) == 0
    return int(diary.read_text().split()[1]), read_state(client)


@pytest.fixture
def survivor(servers: Servers) -> World:
    """Return another client, which finds the state that the killed one has left."""
    return World(servers.client("redis"), WORKSPACE, chunk=1)


def check_recovery(survivor: World, number: int, expected: dict[str, Any]) -> None:
    """Finish what is unfinished, repeat the changes from this one on, and check that the end is as expected."""
    while survivor.ledger.resume_unfinished(WORKSPACE):
        pass
    settled_invariants.check(survivor.client, survivor.ledger, WORKSPACE, lowered=True)
    for name in list(CHANGES)[number:]:
        repeat_change(survivor, name)
    settled_invariants.check(survivor.client, survivor.ledger, WORKSPACE, lowered=True)
    assert read_state(survivor.client) == expected


def test_what_a_killed_client_leaves_between_any_two_calls_is_finished(survivor: World) -> None:
    client = survivor.client
    set_up(client)
    recorder = StateRecorder(client)
    world = World(recorder.client, WORKSPACE, chunk=1)
    for number, change in enumerate(CHANGES.values()):
        recorder.begin_act(number)
        change(world)
        recorder.record()  # with the answer of its last call unread, the change is repeated
    expected = read_state(client)
    assert len(recorder.states) > 3 * len(CHANGES), "the changes are not made in pieces"
    for place, state in enumerate(recorder.states):
        state.restore(client)
        client.delete(key("job_lock", WORKSPACE, "resume"))  # it lapses within a second; the test below waits for that
        try:
            check_recovery(survivor, state.number, expected)
        except Exception as error:
            error.add_note(f"killed in state {place} of {len(recorder.states)}")
            raise


@pytest.mark.parametrize("sent", [False, True], ids=["before a call", "with the answer unread"])
def test_a_client_killed_anywhere(survivor: World, tmp_path: Path, sent: bool) -> None:
    client, diary = survivor.client, tmp_path / "diary"
    calls, expected = whole(client, diary)
    for last in range(1, calls + 1, 1 if TIMES > 1 else 7):  # what is left at the other calls is tried above
        set_up(client)
        assert run(client, diary, last, sent=sent) == -signal.SIGKILL
        try:
            check_recovery(survivor, int(diary.read_text()), expected)
        except Exception as error:
            error.add_note(f"killed at call {last} of {calls}")
            raise
