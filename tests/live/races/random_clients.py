"""One process of many that do everything at once to one workspace; seeded, so that its own decisions can be repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from app.domain.clock import Clock, RedisClock
from app.domain.errors import Refusal
from app.domain.ids import request_id
from app.domain.ledger_limits import LedgerLimits
from app.domain.models import Pool
from app.domain.specs import PolicySpec, RequestSpec
from app.store.connection import connect
from app.store.keys import key
from app.store.ledger import Ledger
from tests.live.races import invariants, settled_invariants
from tests.support.redis_snapshot import Snapshot
from tests.support.world import World, full_component

WORKSPACE: Final = "races"
COMPONENTS: Final = ("a", "b", "c", "d")
ODDS: Final = {
    "submit": 34,
    "submit_some": 4,
    "release": 16,
    "heartbeat": 8,
    "cancel": 4,
    "drop": 3,
    "poll": 4,
    "pass_time": 3,
    "sweep": 4,
    "be_patient": 4,
    "advance": 4,
    "update_pool": 4,
    "set_policy": 3,
    "settle_differently": 2,
    "come_and_go": 3,
    "get_pool": 8,
}


INHERITED: Final = ("pass_time", "get_pool")
"""Verbs that mean the same here as in any world."""


class SharedClock:
    """A time that all processes share, and each may move on."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""
        return int(self._value.value)

    def advance(self, seconds: float) -> None:
        """Move on."""
        with self._value.get_lock():
            self._value.value += round(seconds * 1000)


@dataclass(frozen=True)
class ClientMix:
    """The operations of the clients: their number, the chunk, and whether capacities only grow or only shrink."""

    seed: int
    operations: int
    chunk: int
    shrinking: bool = False


class RandomClient(World):
    """A workspace in which others act as well."""

    def __init__(self, url: str, number: int, mix: ClientMix, time: Any = None) -> None:
        super().__init__(connect(url), WORKSPACE, mix.chunk)
        clock: Clock = SharedClock(time) if time is not None else RedisClock()
        self.time = time
        self.ledger = Ledger(self.client, clock, LedgerLimits(chunk=mix.chunk))
        self.number, self.mix = number, mix
        self.random = Random(mix.seed * 1000 + number)
        self.before: dict[str, Pool] = {}
        self.log = invariants.EventLog()
        self.done: Counter[str] = Counter()

    def run_random_operations(self) -> dict[str, int]:
        """Do what there is to do, so many times; how often each thing succeeded."""
        verbs, odds = list(ODDS), list(ODDS.values())
        for turn in range(self.mix.operations):
            verb = self.random.choices(verbs, odds)[0]
            try:
                getattr(self, f"{verb}_one" if hasattr(World, verb) and verb not in INHERITED else verb)()
                self.done[verb] += 1
            except Refusal as no:
                self.done[f"{verb}: {no.code}"] += 1
            if turn % 25 == self.number * 3:
                self.check_invariants()
        return dict(self.done)

    # requests

    def random_spec(self) -> RequestSpec:
        """Return a random spec."""
        pick = self.random
        fields: dict[str, Any] = {"gpu": pick.choice((1, 1, 1, 2, 3, 5)), "preemptible": pick.random() < 0.85}
        if pick.random() < 0.3:
            fields["licence"] = 1
        if pick.random() < 0.3:
            fields["walltime_s"] = pick.choice((10, 100))
        fields["preemption_class"] = pick.choice((3, 5, 5, 7))
        fields["lease_s"], fields["queue_ttl_s"] = pick.choice((1, 30, 30, None)), pick.choice((5, None, None))
        return self.request_spec(pick.choice(COMPONENTS), **fields)

    def submit_one(self) -> None:
        """Submit a request; sometimes repeat one with another id."""
        idempotency_key = f"key{self.random.randrange(50)}" if self.random.random() < 0.2 else None
        self.ledger.submit(WORKSPACE, self.random_spec(), idempotency_key)

    def submit_some(self) -> None:
        """Submit a batch."""
        self.ledger.submit_all(
            WORKSPACE, [(request_id(), self.random_spec(), None) for _ in range(self.random.randrange(1, 6))]
        )

    def random_member(self, structure: str) -> str | None:
        """Return a random member, of any process; the others may remove it first."""
        member = self.client.zrandmember(key(structure, WORKSPACE))
        return None if member is None else str(member)

    def release_one(self) -> None:
        """Give back what some request holds, sometimes with another's fence."""
        if name := self.random_member("leases"):
            fence, wrong = self.get(name).fence or 0, self.random.random() < 0.05
            self.ledger.release(WORKSPACE, name, fence - wrong)
            assert not wrong, "released with a fence that is not its own"

    def heartbeat_one(self) -> None:
        """Prolong some lease."""
        if name := self.random_member("leases"):
            self.ledger.heartbeat(WORKSPACE, name, self.get(name).fence or 0)

    def cancel_one(self) -> None:
        """Cancel a waiter."""
        if name := self.random_member("waiting"):
            self.ledger.cancel(WORKSPACE, name)

    def drop_one(self) -> None:
        """Drop a request as an operator."""
        if name := self.random_member(self.random.choice(("leases", "waiting", "ended"))):
            self.ledger.drop(WORKSPACE, name)

    def poll(self) -> None:
        """Poll a waiter."""
        if name := self.random_member("waiting"):
            self.get(name, poll=True)

    # time and the housekeeping

    def pass_time(self, seconds: float = 0) -> None:
        """Advance the clock that all processes share."""
        if self.time is not None:
            SharedClock(self.time).advance(seconds or self.random.choice((1, 5, 20)))

    def sweep(self) -> None:
        """End what time has ended."""
        self.ledger.clean_up(WORKSPACE)

    def be_patient(self) -> None:
        """Give a patience hold, if any waiter is due."""
        self.ledger.give_patience_hold(WORKSPACE, self.random.choice(("p", "q")))

    def advance(self) -> None:
        """Resume the unfinished work of another process."""
        self.ledger.resume_unfinished(WORKSPACE)

    # pools and policies

    def update_pool_one(self) -> None:
        """Resize a pool. Each pool is resized by one process, in the direction of the mix only."""
        if self.number >= 2:
            return
        pool, step = "pq"[self.number], -1 if self.mix.shrinking else 1
        furthest = {"gpu": 3, "licence": 1} if self.mix.shrinking else {"gpu": 12, "licence": 5}
        resource = self.random.choice(sorted(furthest))
        if (now := self.get_pool(pool).capacity[resource]) != furthest[resource]:
            self.update_pool(pool, None, **{resource: now + step})

    def set_policy(self) -> None:
        """Set a policy's priority and share; its limit, in pool q, is only lowered where capacities are."""
        pick, pool = self.random, self.random.choice(("p", "q"))
        fields: dict[str, Any] = {"priority": pick.randrange(3), "reserved": {"gpu": pick.randrange(3)}}
        if pool == "p":
            fields["group"] = "g"
        elif self.mix.shrinking:
            fields["limit"] = {"gpu": pick.randrange(2, 6)}
        self.ledger.set_policy(WORKSPACE, pool, full_component(pick.choice(COMPONENTS[:2])), PolicySpec.model_validate(fields))

    def settle_differently(self) -> None:
        """Change the order or the discipline of queueing."""
        setting, values = self.random.choice(
            [
                ("discipline", ("reserved", "classes")),
                ("order", ("share_first", "priority_first")),
                ("queueing", ("best_effort", "best_effort", "strict")),
                ("patience_s", (0, 5, None)),
            ]
        )
        self.update_pool(self.random.choice(("p", "q")), settings={setting: self.random.choice(values)})

    def come_and_go(self) -> None:
        """Create, join, leave or delete a third pool, whichever is possible."""
        way: Callable[[], object] = self.random.choice(
            [
                lambda: self.pool("r", gpu=2),
                lambda: self.policy("a", "r", priority=1),
                lambda: self.policy("c", "r"),
                lambda: self.ledger.delete_policy(WORKSPACE, "r", full_component("a")),
                lambda: self.ledger.delete_pool(WORKSPACE, "r"),
            ]
        )
        way()

    # the calls that only read

    def get_pool(self, name: str = "") -> Pool:
        """Return a pool, and check that it never shows a unit too many, nor a growing overuse."""
        name = name or self.random.choice(("p", "q"))
        pool = super().get_pool(name)
        before = self.before.get(name, pool)
        for resource, capacity in pool.capacity.items():
            used, was = pool.used.get(resource, 0), before.used.get(resource, 0)
            most = max(was, before.capacity[resource]) if self.mix.shrinking else capacity
            assert used <= most, f"{used} of {resource} in use in {name}, {most} would be right: {pool} after {before}"
        self.before[name] = pool
        return pool

    def check_invariants(self) -> None:
        """Check the invariants; if nothing is unfinished, also check that no waiter could be granted."""
        snapshot = Snapshot(self.client, WORKSPACE, after=self.log.after, fields=invariants.REQUEST_FIELDS)
        invariants.require_none(invariants.faults(snapshot, lowered=self.mix.shrinking, log=self.log))
        if not {"unfinished", "orphaned_lanes"} & snapshot.keys.keys():
            invariants.require_none(settled_invariants.faults(snapshot))
            self.done["a look when all was quiet"] += 1


def run_client(url: str, number: int, mix: ClientMix, time: Any = None) -> dict[str, int]:
    """Run the operations of one process."""
    return RandomClient(url, number, mix, time).run_random_operations()
