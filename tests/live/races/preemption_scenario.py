"""A preemption from its first call to its last, in workspaces of several kinds, and everything that may come in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from app.domain.errors import Refusal
from app.domain.plan_steps import PlanStep
from app.domain.snapshot import PoolSnapshot
from app.planner.planning_pass import plan_pool
from app.store.connection import RedisClient
from app.store.keys import key
from app.store.plan_store import PlanStore
from app.store.snapshot_reader import UnfinishedWork
from tests.live.races.invariants import require_none
from tests.live.races.workspace_state import WorkspaceState, check_settled
from tests.support.recorded_world import Recording
from tests.support.strict_reconciler import StrictReconciler
from tests.support.world import World

GRACE_S: Final = 10
TIMEOUT_S: Final = 20
ROUNDS: Final = 40
OWNED: Final = {"gpu": 4}


class PreemptionScenario(World):
    """A pool in which two borrowers, `v1` and `v2`, must leave for a waiter `w`, which another pool can also grant."""

    def __init__(self, client: RedisClient, chunk: int = 200) -> None:
        super().__init__(client, "preemptions", chunk)
        self.plan_snapshot: PoolSnapshot | None = None
        self.steps: tuple[PlanStep, ...] = ()
        self.refused: list[str] = []

    # the workspace

    def set_up(self, settings: Mapping[str, Any], low: Mapping[str, Any], high: Mapping[str, Any], **asks: Any) -> None:
        """Fill both pools: one half is reserved, and the rest is borrowed by the victims."""
        self.pool("p", {"grace_s": GRACE_S, "checkpoint_timeout_s": TIMEOUT_S, "patience_s": None, **settings}, gpu=8)
        self.pool("q", {"patience_s": None}, gpu=4)
        self.group("g", limit=asks.get("within", {}), reserved=high.get("reserved", {}))
        self.policy("own", reserved=OWNED)
        self.policy("own", "q", reserved=OWNED)
        self.policy("low", group="g", **low)
        self.policy("high", group="g", **{"priority": 5, **high})
        self.policy("high", "q")
        self.submit("own", own_id="fixed", gpu=4, preemptible=False)
        self.submit("own", own_id="elsewhere", gpu=4, preemptible=False)
        borrower = {"preemption_class": 3, "retries": asks.get("retries", 3)}
        self.submit("low", own_id="v1", gpu=2, checkpoint="auto", lease_s=600, **borrower)
        self.submit("low", own_id="v2", gpu=2, **borrower)
        for name, units in asks.get("waiters", {"w": 4}).items():
            self.submit("high", own_id=name, gpu=units, preemption_class=8, queue_ttl_s=600)
        self.submit("low", own_id="behind", gpu=1, preemption_class=3)

    # what is done, whether it is refused or not

    def attempt(self, act: Callable[[], Any]) -> None:
        """Do it; that it comes too late is no fault."""
        try:
            act()
        except Refusal as no:
            self.refused.append(no.code)

    def fence(self, name: str) -> int:
        """Return the current fence of a request, or its first one."""
        return self.get(name).fence or 1

    def vacate(self, name: str) -> None:
        """Release a victim as vacated."""
        self.ledger.release(self.workspace, name, self.fence(name), "vacated")

    def finish_work(self, name: str) -> None:
        """Release a request whose work has ended."""
        self.ledger.release(self.workspace, name, self.fence(name))

    def send_heartbeat(self, name: str) -> None:
        """Send a heartbeat."""
        self.ledger.heartbeat(self.workspace, name, self.fence(name))

    def report_checkpoint(self, name: str, state: str) -> None:
        """Report a checkpoint."""
        reference = "s3://there" if state == "completed" else None
        self.ledger.checkpoint(self.workspace, name, self.fence(name), state, 5, reference)

    def drop_request(self, name: str) -> None:
        """Drop a request as an operator."""
        self.ledger.drop(self.workspace, name)

    def expire(self, name: str) -> None:
        """Let the lease or the time to live of a request lapse."""
        for kind in ("leases", "waiting"):
            if self.client.zscore(key(kind, self.workspace), name) is not None:
                self.client.zadd(key(kind, self.workspace), {name: 1})
        self.ledger.clean_up(self.workspace)

    def cancel_request(self, name: str) -> None:
        """Cancel a waiter."""
        self.ledger.cancel(self.workspace, name)

    # deciding

    def make_plan(self) -> None:
        """Look at the pool, and decide."""
        while True:
            try:
                self.plan_snapshot = self.plan_store.read_snapshot(self.workspace, "p")
                break
            except UnfinishedWork:
                self.ledger.resume_unfinished(self.workspace)
        self.steps = plan_pool(self.plan_snapshot).steps if self.plan_snapshot else ()

    def apply_plan(self) -> None:
        """Take the steps that were decided."""
        for step in self.steps:
            if self.plan_snapshot and self.plan_store.apply_step(self.workspace, self.plan_snapshot, step).is_unfinished:
                while self.ledger.resume_unfinished(self.workspace):
                    pass

    def reconcile(self, planning: PlanStore | None = None) -> None:
        """Reconcile until nothing is left to do."""
        while StrictReconciler(planning or self.plan_store, self.ledger).run(self.workspace):
            pass

    def pass_time_and_clean_up(self, seconds: float) -> None:
        """Advance the clock, clean up, and enforce the deadlines."""
        self.clock.advance(seconds)
        self.ledger.clean_up(self.workspace)
        self.enforce_deadlines()

    # and how it is

    def read_state(self) -> WorkspaceState:
        """Return the state of the workspace."""
        return WorkspaceState(self.client, self.workspace, self.clock.now_ms())

    def run_to_rest(self) -> WorkspaceState:
        """Reconcile until no preemption is left; check that all is right and none was needless."""
        now = self.read_state()
        for _ in range(ROUNDS):
            self.reconcile()
            now = self.read_state()
            require_none([*now.faults(lowered=True), *now.superfluous_preemptions()])
            if not now.of_status("preempting"):
                break
            self.pass_time_and_clean_up(GRACE_S)
        require_none(now.leftovers())
        before = len(now.stream)
        self.reconcile()
        last = check_settled(self.client, self.ledger, self.workspace, self.clock.now_ms(), lowered=True, checked=now)
        assert len(last.stream) == before, f"it does not come to rest: {last.stream[before:]}"
        return last


# ---- recorded scenarios


@dataclass(frozen=True)
class RecordedScenario:
    """Everything on the server, and the plan of the process that decides."""

    recording: Recording[None]
    state: WorkspaceState
    plan_snapshot: PoolSnapshot | None
    steps: tuple[PlanStep, ...]
    chunk: int

    @classmethod
    def of(cls, world: PreemptionScenario) -> RecordedScenario:
        """Record a world as it is now."""
        return cls(Recording.of(world, None), world.read_state(), world.plan_snapshot, world.steps, world.limits.chunk)

    def restore(self, client: RedisClient) -> PreemptionScenario:
        """Return a world as it was, on a server with nothing else in it."""
        client.flushall()
        world = PreemptionScenario(client, self.chunk)
        self.recording.restore(world)
        world.plan_snapshot, world.steps = self.plan_snapshot, self.steps
        return world


# ---- the kinds of preemption


@dataclass(frozen=True)
class ScenarioKind:
    """The set-up of the workspace."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    low: Mapping[str, Any] = field(default_factory=dict)
    high: Mapping[str, Any] = field(default_factory=dict)
    asks: Mapping[str, Any] = field(default_factory=dict)

    def set_up(self, client: RedisClient, chunk: int = 200) -> PreemptionScenario:
        """Create the workspace on an empty server."""
        client.flushall()
        world = PreemptionScenario(client, chunk)
        world.set_up(self.settings, self.low, self.high, **self.asks)
        return world


KINDS: Final = {
    "by rank": ScenarioKind(),
    "without grace": ScenarioKind({"grace_s": 0}),
    "of an owner": ScenarioKind(low={"priority": 7}, high={"priority": 0, "reserved": OWNED}),
    "by class": ScenarioKind({"discipline": "classes"}, high={"priority": 0}),
    "for two": ScenarioKind(asks={"waiters": {"w": 2, "x": 2}}),
    "and no return": ScenarioKind({"requeue_failed_checkpoint": False}, asks={"retries": 1}),
    "below a limit": ScenarioKind(asks={"within": {"gpu": 4}}),
    "in a line": ScenarioKind({"queueing": "strict", "order": "priority_first"}),
}

# ---- the story

Action: TypeAlias = Callable[[PreemptionScenario], Any]

STEPS: Final[Mapping[str, Action]] = {
    "plan": PreemptionScenario.make_plan,
    "apply": PreemptionScenario.apply_plan,
    "heartbeat": lambda scenario: scenario.send_heartbeat("v1"),
    "start saving": lambda scenario: scenario.report_checkpoint("v1", "started"),
    "grace is over": lambda scenario: scenario.enforce_deadlines(GRACE_S),
    "more time": lambda scenario: scenario.enforce_deadlines(TIMEOUT_S - GRACE_S),
    "time to save is over": lambda scenario: scenario.enforce_deadlines(TIMEOUT_S / 2),
    "forced": lambda scenario: scenario.enforce_deadlines(GRACE_S),
}
"""One call or two of the store each, in this order; whatever is done between them is done between two calls."""


def resize(units: int) -> Action:
    """Return an action that resizes the pool."""
    return lambda scenario: scenario.update_pool(gpu=units)


def reserve_borrowed(scenario: PreemptionScenario) -> None:
    """Reserve the borrowed units for the borrowers."""
    scenario.group("g", reserved=OWNED)
    scenario.policy("low", group="g", reserved=OWNED)


INTERRUPTIONS: Final[Mapping[str, Action]] = {
    "v1 has finished": lambda scenario: scenario.finish_work("v1"),
    "v1 vacates": lambda scenario: scenario.vacate("v1"),
    "v1 has saved": lambda scenario: scenario.report_checkpoint("v1", "completed"),
    "v1 cannot save": lambda scenario: scenario.report_checkpoint("v1", "failed"),
    "v1 defers": lambda scenario: scenario.report_checkpoint("v1", "defer"),
    "v1 lives": lambda scenario: scenario.send_heartbeat("v1"),
    "v1 lapses": lambda scenario: scenario.expire("v1"),
    "v1 is dropped": lambda scenario: scenario.drop_request("v1"),
    "v2 has finished": lambda scenario: scenario.finish_work("v2"),
    "v2 vacates": lambda scenario: scenario.vacate("v2"),
    "v2 is dropped": lambda scenario: scenario.drop_request("v2"),
    "w is cancelled": lambda scenario: scenario.cancel_request("w"),
    "w is dropped": lambda scenario: scenario.drop_request("w"),
    "w expires": lambda scenario: scenario.expire("w"),
    "w is granted elsewhere": lambda scenario: scenario.finish_work("elsewhere"),
    "w is granted here": lambda scenario: scenario.finish_work("fixed"),
    "the pool grows": resize(10),
    "the pool shrinks": resize(7),
    "victims rise": lambda scenario: scenario.policy("low", group="g", priority=9),
    "the waiter sinks": lambda scenario: scenario.policy("high", group="g", priority=0),
    "the waiter is limited": lambda scenario: scenario.policy("high", group="g", priority=5, limit={"gpu": 3}),
    "shares change": reserve_borrowed,
    "grace ends": lambda scenario: scenario.update_pool(settings={"grace_s": 0}),
    "another asks": lambda scenario: scenario.submit("high", own_id="y", gpu=2, preemption_class=9),
    "the plan again": PreemptionScenario.apply_plan,
    "a second pass": PreemptionScenario.reconcile,
    "time passes": lambda scenario: scenario.pass_time_and_clean_up(GRACE_S),
}

ENDED_WAITER: Final = {"w is cancelled": "cancelled", "w is dropped": "cancelled", "w expires": "expired"}
"""The final status of a waiter that an interruption ends."""
RULE_CHANGES: Final = {
    "the pool shrinks",
    "victims rise",
    "the waiter sinks",
    "the waiter is limited",
    "shares change",
    "another asks",
}
"""After these the waiter may have to go on waiting."""
