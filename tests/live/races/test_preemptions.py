"""A preemption is disturbed at every point between two calls, in every way. Nothing is lost or counted twice, no request
leaves needlessly, and the audit is clean at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product

import pytest

from app.domain.plan_steps import PlanStep, Preempt, Reprieve
from app.domain.snapshot import PoolSnapshot
from app.planner.planning_pass import plan_pool
from app.store.connection import RedisClient
from app.store.plan_store import PlanStore, StepResult
from app.store.scripts import Arg, ScriptReply, Scripts
from tests.live.races.preemption_scenario import (
    ENDED_WAITER,
    INTERRUPTIONS,
    KINDS,
    RULE_CHANGES,
    STEPS,
    Action,
    PreemptionScenario,
    RecordedScenario,
)
from tests.live.races.processes import TIMES
from tests.live.races.workspace_state import WorkspaceState
from tests.support.servers import Servers

WHOLE = ("by rank", "without grace", "of an owner", "for two")
"""Kinds of which every case is tried; of the others every second one is, or every one with POOLKEEPER_TEST_TIMES=2."""


@pytest.fixture
def client(servers: Servers) -> RedisClient:
    """Return a client of an empty server; the fake takes several times as long for a call."""
    return servers.client("embedded")


def cases(points: Iterable[int], kind: str) -> Iterator[tuple[int, str]]:
    """Yield points of the story, each with a name of `INTERRUPTIONS`."""
    shift, every = list(KINDS).index(kind), 1 if TIMES > 1 or kind in WHOLE else 2
    for number, case in enumerate(product(points, INTERRUPTIONS)):
        if (number + 3 * shift) % every == 0:
            yield case


def record_points(client: RedisClient, kind: str) -> dict[int, RecordedScenario]:
    """Record the world before each call of the story and after the last one, unless the call before it changed nothing."""
    world = KINDS[kind].set_up(client)
    points = {0: RecordedScenario.of(world)}
    before = points[0].state
    for number, step in enumerate(STEPS.values(), start=1):
        run_steps(world, [step])
        now = world.read_state()
        if number == 1 or now.snapshot.data != before.snapshot.data:
            points[number] = RecordedScenario.of(world)
        before = now
    check_outcome("nothing", points[0].state, points[0].state, world.run_to_rest())
    return points


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_comes_in_between(client: RedisClient, kind: str) -> None:
    points = record_points(client, kind)
    for point, act in cases(points, kind):
        try:
            interrupt(client, points[point], point, act)
        except Exception as error:
            error.add_note(f"{kind}: {act} at point {point} of {list(STEPS)}")
            raise


def interrupt(client: RedisClient, recording: RecordedScenario, point: int, act: str) -> None:
    """Interrupt the sequence at this point, finish it, and check the outcome of all requests."""
    world, before = recording.restore(client), recording.state
    world.attempt(lambda: INTERRUPTIONS[act](world))
    after = world.read_state()
    if after.snapshot.data == before.snapshot.data:  # it came too late, or too early
        return
    run_steps(world, list(STEPS.values())[point:])
    check_outcome(act, before, after, world.run_to_rest())


def run_steps(world: PreemptionScenario, steps: Iterable[Action]) -> None:
    """Run these steps of the sequence."""
    for step in steps:
        world.attempt(lambda step=step: step(world))  # type: ignore[misc]


def check_outcome(act: str, before: WorkspaceState, after: WorkspaceState, last: WorkspaceState) -> None:
    """Check that the waiter is granted unless it left or the rules changed, and that needless victims stay."""
    was, now, then = (state.model.requests["w"].status for state in (before, after, last))
    if act in ENDED_WAITER and was == "queued":
        assert (now, then) == (ENDED_WAITER[act], ENDED_WAITER[act])
    elif act not in RULE_CHANGES and now not in ("released", "expired"):
        assert then == "allocated"
    else:
        assert then in ("queued", "allocated", "released", "expired", "rejected", "preempted")
    if now == "queued" or was != "queued":
        return
    for name, owner in before.model.leaving["p"].items():
        request = last.model.requests[name]
        if owner == "w" and after.model.requests[name].status == "preempting":
            assert (request.status, request.fence) == ("allocated", before.model.requests[name].fence), (
                f"{name} has left for nothing"
            )


# ---- two at once


class InterruptedScripts(Scripts):
    """A way to the server on which something happens before the n-th call."""

    def __init__(self, client: RedisClient, call_number: int, then: Callable[[], object]) -> None:
        super().__init__(client)
        self.calls, self.at, self.then = 0, call_number, then

    def call(self, command: str, workspace: str, /, **args: Arg) -> ScriptReply:
        """Call the script, and act before the given call."""
        self.calls += 1
        if self.calls == self.at:
            self.then()
        return super().call(command, workspace, **args)


class SlowPlanStore(PlanStore):
    """Decides so slowly that each time another pass runs between what it sees and what it does."""

    def __init__(self, world: PreemptionScenario) -> None:
        super().__init__(world.client, world.clock, world.limits)
        self.world, self.stale = world, 0

    def apply_step(self, workspace: str, snapshot: PoolSnapshot, step: PlanStep) -> StepResult:
        """Apply the step after another process has reconciled."""
        self.world.reconcile()
        taken = super().apply_step(workspace, snapshot, step)
        self.stale += not taken.applied
        return taken


def started(client: RedisClient, kind: str, waits: bool) -> PreemptionScenario:
    """Create a workspace with preemptions to start, or with preemptions whose waiter has gone."""
    world = KINDS[kind].set_up(client)
    if not waits:
        world.reconcile()
        world.cancel_request("w")
        world.clock.advance(1)
    return world


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_pass_between_any_two_calls_of_one(client: RedisClient, kind: str) -> None:
    for waits in (True, False)[: 1 if kind == "without grace" else 2]:
        point, calls, recording = 1, 1, RecordedScenario.of(started(client, kind, waits))
        while point <= calls:
            world = recording.restore(client)
            planning = PlanStore(client, world.clock, world.limits)
            way = InterruptedScripts(client, point, world.reconcile)
            planning._scripts = way
            world.reconcile(planning)
            calls = way.calls
            check_one_preemption(world, waits)
            point += 1
        assert calls >= 3, "a pass looks, decides and does"


@pytest.mark.parametrize("kind", KINDS)
def test_a_slow_reconciler_repeats_nothing(client: RedisClient, kind: str) -> None:
    for waits in (True, False)[: 1 if kind == "without grace" else 2]:
        world = started(client, kind, waits)
        slow = SlowPlanStore(world)
        world.reconcile(slow)
        assert slow.stale or not waits
        check_one_preemption(world, waits)


def check_one_preemption(world: PreemptionScenario, waits: bool) -> None:
    """Check that each victim got one notice for a waiter, and each needless victim one reprieve; then finish the sequence."""
    now = world.read_state()
    requests = [event["request"] for _, event in now.stream if event["event"] in ("preempting", "preempted")]
    assert sorted(requests) == ["v1", "v2"]
    back = [event["request"] for _, event in now.stream if event["event"] == "reprieved"]
    assert len(set(back)) == len(back)
    assert not (waits and back)
    last = world.run_to_rest()
    assert [last.model.requests[name].status for name in ("w", "behind")] == ["allocated" if waits else "cancelled", "queued"]


# ---- plans that were right when they were made


def test_a_waiter_with_victims_in_one_pool_gets_none_in_another(client: RedisClient) -> None:
    world = KINDS["by rank"].set_up(client)
    world.policy("low", "q")
    world.finish_work("elsewhere")
    world.submit("low", own_id="v3", gpu=4, preemption_class=3)
    world.submit("high", own_id="y", gpu=4, preemption_class=9)
    assert world.get("w").pool == "q", "the waiter got the released units"
    snapshot = world.snapshot("q")
    steps = plan_pool(snapshot).steps
    assert [step.waiter for step in steps if isinstance(step, Preempt)] == ["y"], "it would preempt there"
    world.reconcile()
    before = world.read_state().snapshot.data
    taken = [world.plan_store.apply_step(world.workspace, snapshot, step) for step in steps]
    assert ([result.reason for result in taken], world.read_state().snapshot.data) == (["hold elsewhere"], before)
    world.run_to_rest()


def test_a_reassigned_victim_is_not_reprieved(client: RedisClient) -> None:
    world = KINDS["for two"].set_up(client)
    world.reconcile()
    world.cancel_request("w")
    world.make_plan()
    assert [type(step) for step in world.steps] == [Reprieve]
    world.update_pool(gpu=6)
    world.reconcile()
    assert world.read_state().count_events("passed_on") == {"passed_on": 1}
    before = world.read_state().snapshot.data
    world.apply_plan()
    assert world.read_state().snapshot.data == before
    world.run_to_rest()
