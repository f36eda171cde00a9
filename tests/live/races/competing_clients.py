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
        """Never goes on."""
        return False


class RaceWorld(World):
    """A workspace as one of those who race sees it."""

    def __init__(self, url: str, number: int, chunk: int = 200) -> None:
        super().__init__(connect(url), "competing_clients", chunk)
        self.number, self.chunk = number, chunk

    def reset(self) -> None:
        """One unit, and two who may have it."""
        self.client.flushall()
        self.pool(gpu=1, licence=9, settings={"patience_s": PATIENCE_S})
        self.policy("t")
        self.policy("u", reserved={"licence": 2})

    def at_later_time(self, seconds: float) -> World:
        """The same workspace some time later."""
        late = World(self.client, self.workspace)
        late.clock.advance(seconds)
        return late

    def outcome(self) -> tuple[list[str], int]:
        """What became of all requests, in order of submission, and what is in use; nothing else is wrong."""
        snapshot = settled_invariants.check(self.client, self.ledger, self.workspace)
        by_age = sorted(snapshot.requests.values(), key=lambda request: int(request["seq"]))
        return [request["status"] for request in by_age], snapshot.column("pool:p", "used").get("gpu", 0)


@dataclass(frozen=True)
class Race:
    """What is prepared in each round, and what all then do at once."""

    prepare: Callable[[RaceWorld], object]
    act: Callable[[RaceWorld], str]
    chunk: int = 200


def submit_for_last_unit(world: RaceWorld) -> str:
    """Ask for the one unit."""
    return str(world.submit(gpu=1).status)


def submit_with_same_key(world: RaceWorld) -> str:
    """The same body with the same key, each under an id of its own."""
    request = world.submit(key="once", gpu=1)
    return f"{request.id} {request.status} {request.number} {request.fence}"


def submit_other_body_with_same_key(world: RaceWorld) -> str:
    """The same key, but every second process means another body."""
    body = world.number % 2
    try:
        return f"{body} {world.submit(key='once', gpu=1, licence=body + 1).id}"
    except Refusal as no:
        return f"{body} {no.code}"


def submit_with_same_id(world: RaceWorld) -> str:
    """The same id, without a key."""
    request = world.submit(own_id="once", gpu=1)
    return f"{request.id} {request.status} {request.number} {request.fence}"


def set_up_allocation_and_waiter(world: RaceWorld) -> None:
    """Somebody holds the unit, and another waits for it."""
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
    """The holder gives the unit back while the waiter leaves."""
    if world.number % 2:
        return f"release {release(world)}"
    try:
        return f"cancel {world.ledger.cancel(world.workspace, 'waiter').status}"
    except Refusal as no:
        return f"cancel {no.code}"


def set_up_unfinished_work(world: RaceWorld) -> None:
    """A pool has grown, waiters are to be ranked anew and some fit nowhere any more; of all that hardly anything is done."""
    world.reset()
    for each in range(12):
        world.submit("tu"[each % 2], gpu=1, licence=1 + each // 4)
    world.ledger = InterruptedLedger(world.client, world.clock, LedgerLimits(chunk=world.chunk))
    world.policy("u", limit={"licence": 2}, reserved={"licence": 1}, priority=3)
    world.update_pool(gpu=4)
    world.ledger = Ledger(world.client, world.clock, LedgerLimits(chunk=world.chunk))


def resume_unfinished(world: RaceWorld) -> str:
    """Go on with it until nothing is left."""
    rounds = 1
    while world.ledger.resume_unfinished(world.workspace):
        rounds += 1
    return str(rounds)


def give_patience_hold(world: RaceWorld) -> str:
    """Long after, give the pool's one hold."""
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
    """What one process was answered in each round; number 0 also says what became of it."""
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
