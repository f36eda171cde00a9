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
        seen = settled_invariants.check(self.client, self.ledger, self.workspace)
        by_age = sorted(seen.requests.values(), key=lambda request: int(request["seq"]))
        return [request["status"] for request in by_age], seen.column("pool:p", "used").get("gpu", 0)


@dataclass(frozen=True)
class Race:
    """What is prepared in each round, and what all then do at once."""

    prepare: Callable[[RaceWorld], object]
    act: Callable[[RaceWorld], str]
    chunk: int = 200


def submit_for_last_unit(arena: RaceWorld) -> str:
    """Ask for the one unit."""
    return str(arena.submit(gpu=1).status)


def submit_with_same_key(arena: RaceWorld) -> str:
    """The same body with the same key, each under an id of its own."""
    one = arena.submit(key="once", gpu=1)
    return f"{one.id} {one.status} {one.number} {one.fence}"


def submit_other_body_with_same_key(arena: RaceWorld) -> str:
    """The same key, but every second process means another body."""
    body = arena.number % 2
    try:
        return f"{body} {arena.submit(key='once', gpu=1, licence=body + 1).id}"
    except Refusal as no:
        return f"{body} {no.code}"


def submit_with_same_id(arena: RaceWorld) -> str:
    """The same id, without a key."""
    one = arena.submit(own_id="once", gpu=1)
    return f"{one.id} {one.status} {one.number} {one.fence}"


def set_up_allocation_and_waiter(arena: RaceWorld) -> None:
    """Somebody holds the unit, and another waits for it."""
    arena.reset()
    arena.submit(own_id="holder", gpu=1, lease_s=LEASE_S)
    arena.submit("u", own_id="waiter", gpu=1)


def release(arena: RaceWorld) -> str:
    """Give the unit back."""
    return arena.ledger.release(arena.workspace, "holder", 1).status


def end_allocation(arena: RaceWorld) -> str:
    """Release it, drop it, let its lease lapse, or prolong that."""
    ways: list[tuple[str, Callable[[], object]]] = [
        ("release", lambda: release(arena)),
        ("drop", lambda: arena.ledger.drop(arena.workspace, "holder").status),
        ("sweep", lambda: arena.at_later_time(LEASE_S + 1).ledger.clean_up(arena.workspace).expired_leases),
        ("heartbeat", lambda: arena.ledger.heartbeat(arena.workspace, "holder", 1).status),
    ]
    name, way = ways[arena.number % len(ways)]
    try:
        return f"{name} {way()}"
    except Refusal as no:
        return f"{name} {no.code}"


def cancel_or_grant(arena: RaceWorld) -> str:
    """The holder gives the unit back while the waiter leaves."""
    if arena.number % 2:
        return f"release {release(arena)}"
    try:
        return f"cancel {arena.ledger.cancel(arena.workspace, 'waiter').status}"
    except Refusal as no:
        return f"cancel {no.code}"


def set_up_unfinished_work(arena: RaceWorld) -> None:
    """A pool has grown, waiters are to be ranked anew and some fit nowhere any more; of all that hardly anything is done."""
    arena.reset()
    for each in range(12):
        arena.submit("tu"[each % 2], gpu=1, licence=1 + each // 4)
    arena.ledger = InterruptedLedger(arena.client, arena.clock, LedgerLimits(chunk=arena.chunk))
    arena.policy("u", limit={"licence": 2}, reserved={"licence": 1}, priority=3)
    arena.update_pool(gpu=4)
    arena.ledger = Ledger(arena.client, arena.clock, LedgerLimits(chunk=arena.chunk))


def resume_unfinished(arena: RaceWorld) -> str:
    """Go on with it until nothing is left."""
    rounds = 1
    while arena.ledger.resume_unfinished(arena.workspace):
        rounds += 1
    return str(rounds)


def give_patience_hold(arena: RaceWorld) -> str:
    """Long after, give the pool's one hold."""
    return str(arena.at_later_time(PATIENCE_S + 1).ledger.give_patience_hold(arena.workspace, "p"))


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
    duel, seen = RACES[name], []
    arena = RaceWorld(url, number, duel.chunk)
    for _ in range(rounds):
        if number == 0:
            duel.prepare(arena)
        barrier.wait(60)
        answer = duel.act(arena)
        barrier.wait(60)
        seen.append((answer, arena.outcome() if number == 0 else None))
    return seen
