"""Small races for one thing: one process prepares, all meet at a barrier and act at once; again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from app.domain.errors import Refusal
from app.domain.ledger_limits import LedgerLimits
from app.store.connection import connect
from app.store.ledger import Ledger
from tests.live.races import settled_invariants
from tests.support.world import World

LEASE_S, PATIENCE_S = 10, 30


class InterruptedLedger(Ledger):
    """A ledger that dies after the first call of every change, and leaves the rest to others."""

    def resume_unfinished(self, workspace: str) -> bool:
        """Return False: the unfinished work stays."""
        return False


class RaceWorld(World):
    """The workspace of a race, for one of its processes."""

    def __init__(self, url: str, number: int, chunk: int = 200) -> None:
        super().__init__(connect(url), "competing_clients", chunk)
        self.number, self.chunk = number, chunk

    def reset(self) -> None:
        """Create one unit, and two policies that may use it."""
        self.client.flushall()
        self.pool(gpu=1, licence=9, settings={"patience_s": PATIENCE_S})
        self.policy("t")
        self.policy("u", reserved={"licence": 2})

    def at_later_time(self, seconds: float) -> World:
        """Return the same workspace some time later."""
        late = World(self.client, self.workspace)
        late.clock.advance(seconds)
        return late

    def outcome(self) -> tuple[list[str], int]:
        """Return the status of all requests by age, and the units in use; check that nothing else is wrong."""
        snapshot = settled_invariants.check(self.client, self.ledger, self.workspace)
        by_age = sorted(snapshot.requests.values(), key=lambda request: int(request["seq"]))
        return [request["status"] for request in by_age], snapshot.column("pool:p", "used").get("gpu", 0)


@dataclass(frozen=True)
class Race:
    """A race: its preparation in each round, and the action that all processes do at once."""

    prepare: Callable[[RaceWorld], object]
    act: Callable[[RaceWorld], str]
    chunk: int = 200


def submit_for_last_unit(world: RaceWorld) -> str:
    """Ask for the one unit."""
    return str(world.submit(gpu=1).status)


def submit_with_same_key(world: RaceWorld) -> str:
    """Submit the same body with the same key, each process under an id of its own."""
    request = world.submit(key="once", gpu=1)
    return f"{request.id} {request.status} {request.number} {request.fence}"


def submit_other_body_with_same_key(world: RaceWorld) -> str:
    """Submit with the same key; every second process sends another body."""
    body = world.number % 2
    try:
        return f"{body} {world.submit(key='once', gpu=1, licence=body + 1).id}"
    except Refusal as no:
        return f"{body} {no.code}"


def submit_with_same_id(world: RaceWorld) -> str:
    """Submit with the same id, without a key."""
    request = world.submit(own_id="once", gpu=1)
    return f"{request.id} {request.status} {request.number} {request.fence}"


def set_up_allocation_and_waiter(world: RaceWorld) -> None:
    """Create an allocation of the unit, and a waiter."""
    world.reset()
    world.submit(own_id="holder", gpu=1, lease_s=LEASE_S)
    world.submit("u", own_id="waiter", gpu=1)


def release(world: RaceWorld) -> str:
    """Give the unit back."""
    return world.ledger.release(world.workspace, "holder", 1).status


def end_allocation(world: RaceWorld) -> str:
    """Release it, drop it, let its lease lapse, or prolong that."""
    ways: list[tuple[str, Callable[[], object]]] = [
        ("release", lambda: release(world)),
        ("drop", lambda: world.ledger.drop(world.workspace, "holder").status),
        ("sweep", lambda: world.at_later_time(LEASE_S + 1).ledger.clean_up(world.workspace).expired_leases),
        ("heartbeat", lambda: world.ledger.heartbeat(world.workspace, "holder", 1).status),
    ]
    name, way = ways[world.number % len(ways)]
    try:
        return f"{name} {way()}"
    except Refusal as no:
        return f"{name} {no.code}"


def cancel_or_grant(world: RaceWorld) -> str:
    """Release the unit in one process, cancel the waiter in another."""
    if world.number % 2:
        return f"release {release(world)}"
    try:
        return f"cancel {world.ledger.cancel(world.workspace, 'waiter').status}"
    except Refusal as no:
        return f"cancel {no.code}"


def set_up_unfinished_work(world: RaceWorld) -> None:
    """Create unfinished work: a pool has grown, waiters must be ordered anew, and some fit nowhere any more."""
    world.reset()
    for each in range(12):
        world.submit("tu"[each % 2], gpu=1, licence=1 + each // 4)
    world.ledger = InterruptedLedger(world.client, world.clock, LedgerLimits(chunk=world.chunk))
    world.policy("u", limit={"licence": 2}, reserved={"licence": 1}, priority=3)
    world.update_pool(gpu=4)
    world.ledger = Ledger(world.client, world.clock, LedgerLimits(chunk=world.chunk))


def resume_unfinished(world: RaceWorld) -> str:
    """Resume unfinished work until none is left."""
    rounds = 1
    while world.ledger.resume_unfinished(world.workspace):
        rounds += 1
    return str(rounds)


def give_patience_hold(world: RaceWorld) -> str:
    """Give the pool's one hold after the patience of the waiters."""
    return str(world.at_later_time(PATIENCE_S + 1).ledger.give_patience_hold(world.workspace, "p"))


RACES: Final = {
    "the last unit": Race(RaceWorld.reset, submit_for_last_unit),
    "the same key": Race(RaceWorld.reset, submit_with_same_key),
    "the same key for two bodies": Race(RaceWorld.reset, submit_other_body_with_same_key),
    "the same id": Race(RaceWorld.reset, submit_with_same_id),
    "the same release": Race(set_up_allocation_and_waiter, release),
    "release, drop, lapse, heartbeat": Race(set_up_allocation_and_waiter, end_allocation),
    "cancel or grant": Race(set_up_allocation_and_waiter, cancel_or_grant),
    "the same unfinished work": Race(set_up_unfinished_work, resume_unfinished, chunk=1),
    "the one hold": Race(set_up_allocation_and_waiter, give_patience_hold),
}


def run_race(url: str, number: int, name: str, rounds: int, barrier: Any) -> list[tuple[str, Any]]:
    """Return the replies of one process in each round; process 0 adds the outcome of the round."""
    race, outcomes = RACES[name], []
    world = RaceWorld(url, number, race.chunk)
    for _ in range(rounds):
        if number == 0:
            race.prepare(world)
        barrier.wait(60)
        answer = race.act(world)
        barrier.wait(60)
        outcomes.append((answer, world.outcome() if number == 0 else None))
    return outcomes
