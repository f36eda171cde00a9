"""Processes that all decide at once, among others that ask, hold, answer, leave and give up, in a time of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from app.domain.errors import Refusal
from app.domain.ledger_limits import LedgerLimits
from app.store.connection import connect
from app.store.keys import key
from app.store.ledger import Ledger
from app.store.plan_store import PlanStore
from tests.live.races.invariants import require_none
from tests.live.races.random_clients import SharedClock
from tests.live.races.workspace_state import WorkspaceState
from tests.support.strict_reconciler import StrictReconciler
from tests.support.world import World

WORKSPACE: Final = "reconcilers"
ODDS: Final = {"ask": 30, "beat": 10, "give_back": 14, "vacate": 6, "save": 20, "give_up": 6, "end": 4, "look_around": 3}
STATES: Final = ("started", "progress", "defer", "completed", "completed", "failed")
MIN_PREEMPTIONS: Final = 5
"""Preemptions with a grace period that have to happen."""
CAPACITY: Final = {"p": 12, "q": 4}


@dataclass(frozen=True)
class Workload:
    """The work of a group of processes: its seed, its amount, and the chunk of each call."""

    seed: int
    operations: int
    chunk: int
    settings: dict[str, Any]


class ReconcilerProcess(World):
    """One of those at work."""

    def __init__(self, url: str, number: int, workload: Workload, time: Any, working: Any) -> None:
        super().__init__(connect(url), WORKSPACE, workload.chunk)
        self.shift, self.time, self.working = workload, SharedClock(time), working
        self.ledger = Ledger(self.client, self.time, LedgerLimits(chunk=workload.chunk))
        self.plan_store = PlanStore(self.client, self.time, LedgerLimits(chunk=workload.chunk))
        self.random = Random(workload.seed * 100 + number)
        self.done: Counter[str] = Counter()

    def set_up(self) -> None:
        """Create two pools, an owner, borrowers, and requests of higher priority."""
        self.pool("p", {"grace_s": 4, "checkpoint_timeout_s": 6, "patience_s": None, **self.shift.settings}, gpu=CAPACITY["p"])
        self.pool("q", {"grace_s": 0, "patience_s": None}, gpu=CAPACITY["q"])
        self.group("g", limit={"gpu": 10})
        self.policy("low", group="g")
        self.policy("high", priority=5, group="g")
        self.policy("owner", reserved={"gpu": 4})
        self.policy("high", "q", priority=1)
        self.policy("low", "q", priority=0)

    # the processes that decide

    def run_passes(self) -> dict[str, int]:
        """Run pass after pass while any other process works; advance the time."""
        reconciler = StrictReconciler(self.plan_store, self.ledger)
        while self.working.value:
            self.done["left" if reconciler.run(self.workspace) else "passes"] += 1
            self.ledger.clean_up(self.workspace)
            self.time.advance(self.random.choice((0, 0.5, 1, 2)))
        return dict(self.done)

    # the processes that submit and hold

    def run_client(self) -> dict[str, int]:
        """Run so many operations, or up to four times as many until there are enough preemptions; return how often each was."""
        try:
            for turn in range(self.shift.operations * 4):
                if turn >= self.shift.operations and turn % 20 == 0 and self._has_enough_preemptions():
                    break
                (verb,) = self.random.choices(list(ODDS), list(ODDS.values()))
                self._attempt(verb, getattr(self, verb))
        finally:
            with self.working.get_lock():
                self.working.value -= 1
        return dict(self.done)

    def _has_enough_preemptions(self) -> bool:
        state = WorkspaceState(self.client, self.workspace, self.time.now_ms())
        return state.count_events("preempting")["preempting"] >= MIN_PREEMPTIONS

    def _attempt(self, verb: str, act: Callable[[], object]) -> None:
        try:
            act()
            self.done[verb] += 1
        except Refusal as no:
            self.done[f"{verb}: {no.code}"] += 1

    def ask(self, *_: Any, **__: Any) -> Any:
        """Submit one more request, unless too many wait."""
        if int(self.client.zcard(key("waiting", self.workspace))) > 25:
            return self.give_up()
        pick = self.random
        component = pick.choices(("low", "high", "owner"), (5, 3, 2))[0]
        fields: dict[str, Any] = {
            "gpu": pick.choice((1, 1, 2, 3)),
            "preemption_class": pick.choice((3, 5, 8)),
            "retries": pick.choice((1, 3, -1)),
        }
        fields |= {"checkpoint": pick.choice(("none", "auto")), "lease_s": pick.choice((30, None))}
        return self.ledger.submit(self.workspace, super().request_spec(component, **fields))

    def _random_member(self, structure: str) -> str | None:
        member = self.client.zrandmember(key(structure, self.workspace))
        return None if member is None else str(member)

    def _random_allocation(self, structure: str) -> tuple[str, int] | None:
        name = self._random_member(structure)
        fence = self.get(name).fence if name else None
        return (name, fence) if name and fence else None

    def beat(self) -> None:
        """Send the heartbeat of a holder."""
        if allocation := self._random_allocation(self.random.choice(("leases", "preemption_deadlines"))):
            result = self.ledger.heartbeat(self.workspace, *allocation)
            self.done[f"told to {result.directive}"] += 1

    def give_back(self) -> None:
        """Release an allocation whose work has ended."""
        if allocation := self._random_allocation("leases"):
            self.ledger.release(self.workspace, *allocation)

    def vacate(self) -> None:
        """Release an allocation that was preempted."""
        if allocation := self._random_allocation("preemption_deadlines"):
            self.ledger.release(self.workspace, *allocation, "vacated")

    def save(self) -> None:
        """Report a checkpoint of a preempted request."""
        if allocation := self._random_allocation("preemption_deadlines"):
            self.ledger.checkpoint(self.workspace, *allocation, self.random.choice(STATES), 1)

    def give_up(self) -> None:
        """Cancel a waiter."""
        if name := self._random_member("waiting"):
            self.ledger.cancel(self.workspace, name)

    def end(self) -> None:
        """Drop a request as an operator."""
        if name := self._random_member(self.random.choice(("leases", "waiting"))):
            self.ledger.drop(self.workspace, name)

    def look_around(self) -> None:
        """Check that the data agree, whatever the other processes do."""
        require_none(WorkspaceState(self.client, self.workspace, self.time.now_ms() + 60_000).faults())


def run_process(url: str, number: int, workload: Workload, time: Any, working: Any, decides: bool) -> dict[str, int]:
    """Run one process of the group."""
    member = ReconcilerProcess(url, number, workload, time, working)
    return member.run_passes() if decides else member.run_client()
