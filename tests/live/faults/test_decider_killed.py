"""The process that decides on preemptions is killed between any two of its calls: the next pass finishes its work, and in the
end every request is where it would have been.

To the server, a process killed before a call looks like one killed with the answer of the call before unread. So what is left
between any two calls is recorded once and tried in full; real processes are killed at some of the calls.
"""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from app.store.connection import RedisClient
from tests.live.faults.interrupted_states import StateRecorder
from tests.live.faults.preemption_sequence import CHUNK, SEQUENCE, run_sequence, set_up
from tests.live.races.invariants import require_none
from tests.live.races.preemption_scenario import PreemptionScenario
from tests.live.races.processes import CONTEXT, TIMES
from tests.support.servers import Servers

DECISIONS = (
    "preempt applied",
    "reassign_or_reprieve applied",
    "enforce_deadlines enforced",
    "resume_unfinished advanced",
)

EVENTS = ("clearing", "preempting", "passed_on", "reprieved", "terminating", "forced")


def run(client: RedisClient, diary: Path, last: int, *, sent: bool) -> int | None:
    """Run the sequence in a process that dies at the given call; return its exit code."""
    path = client.connection_pool.connection_kwargs["path"]  # type: ignore[union-attr]
    process = CONTEXT.Process(target=run_sequence, args=(path, diary, last, sent, set_up(client).clock.now_ms()))
    process.start()
    process.join(60)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError("the story does not end")
    return process.exitcode


def survivor(client: RedisClient, diary: Path) -> tuple[PreemptionScenario, int]:
    """Return another process's view at the time of the kill, and the progress of the sequence."""
    number, now_ms = diary.read_text().splitlines()[0].split()
    return scenario_at(client, int(now_ms)), int(number)


def scenario_at(client: RedisClient, now_ms: int) -> PreemptionScenario:
    """Return the scenario of another process at that time."""
    world = PreemptionScenario(client, CHUNK)
    world.clock.advance((now_ms - world.clock.now_ms()) / 1000)
    return world


def outcome(world: PreemptionScenario) -> dict[str, str]:
    """Return the final status of every request."""
    return {name: request.status for name, request in world.run_to_rest().model.requests.items()}


@pytest.mark.parametrize("sent", [False, True], ids=["before a call", "with the answer unread"])
def test_a_reconciler_is_killed_at_every_call(servers: Servers, tmp_path: Path, sent: bool) -> None:
    client, diary = servers.client("redis"), tmp_path / "diary"
    for _ in range(2):  # the first time the server does not know all of the scripts yet, which takes calls of its own
        assert run(client, diary, 0, sent=False) == 0
    _, calls, *called = diary.read_text().splitlines()
    done = Counter(called)
    assert [name for name in DECISIONS if done[name] < 2] == [], f"the story has not enough of it: {done}"
    whole = survivor(client, diary)[0]
    expected = outcome(whole)
    assert whole.read_state().count_events(*EVENTS).keys() == set(EVENTS)
    for last in range(1, int(calls) + 1, 1 if TIMES > 1 else 8):  # what is left at the other calls is tried below
        assert run(client, diary, last, sent=sent) == -signal.SIGKILL
        world, number = survivor(client, diary)
        check_recovery(world, number, expected, f"killed at call {last} of {calls}")


def test_what_a_killed_decider_leaves_between_any_two_calls_is_finished(servers: Servers) -> None:
    client = servers.client("redis")
    recorder = StateRecorder(client)
    world = scenario_at(recorder.client, set_up(client).clock.now_ms())
    recorder.states.clear()
    for number, act in enumerate(SEQUENCE.values()):
        recorder.begin_act(number, world.clock.now_ms())
        world.attempt(lambda act=act: act(world))  # type: ignore[misc]
        recorder.record()  # with the answer of its last call unread, the act is repeated
    expected, states = outcome(scenario_at(client, world.clock.now_ms())), recorder.states
    assert len(states) > 3 * len(SEQUENCE), "the acts are not made in pieces"
    for place, state in enumerate(states):
        state.restore(client)
        check_recovery(scenario_at(client, state.now_ms), state.number, expected, f"killed in state {place} of {len(states)}")


def check_recovery(world: PreemptionScenario, number: int, expected: dict[str, str], place: str) -> None:
    """Let another process finish the work and the sequence, and check that every request ends as expected."""
    try:
        goes_on(world, number)
        assert outcome(world) == expected
    except Exception as error:
        error.add_note(f"{place}, in {list(SEQUENCE)[number]!r}")
        raise


def goes_on(world: PreemptionScenario, number: int) -> None:
    """Run one pass, check that it leaves nothing unfinished and no needless preemption, then finish the sequence."""
    world.reconcile()
    while world.plan_store.enforce_deadlines(world.workspace)[1]:
        pass
    now = world.read_state()
    require_none([*now.faults(lowered=True), *now.superfluous_preemptions()])
    assert not world.ledger.resume_unfinished(world.workspace)
    for act in list(SEQUENCE.values())[number:]:
        world.attempt(lambda act=act: act(world))  # type: ignore[misc]
