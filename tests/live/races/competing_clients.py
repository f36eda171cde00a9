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


class Forgetful(Ledger):
    """A ledger that dies after the first call of every change, and leaves the rest to others."""

    def resume_unfinished(self, workspace: str) -> bool:
        """Never goes on."""
        return False


class Arena(World):
    """A workspace as one of those who race sees it."""

    def __init__(self, url: str, number: int, chunk: int = 200) -> None:
        super().__init__(connect(url), "duels", chunk)
        self.number, self.chunk = number, chunk

    def fresh(self) -> None:
        """One unit, and two who may have it."""
        self.client.flushall()
        self.pool(gpu=1, licence=9, settings={"patience_s": PATIENCE_S})
        self.policy("t")
        self.policy("u", reserved={"licence": 2})

    def late(self, seconds: float) -> World:
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
class Duel:
    """What is prepared in each round, and what all then do at once."""

    prepare: Callable[[Arena], object]
    act: Callable[[Arena], str]
    chunk: int = 200


def take(arena: Arena) -> str:
    """Ask for the one unit."""
    return str(arena.submit(gpu=1).status)


def send_the_same(arena: Arena) -> str:
    """The same body with the same key, each under an id of its own."""
    one = arena.submit(key="once", gpu=1)
    return f"{one.id} {one.status} {one.number} {one.fence}"


def send_another(arena: Arena) -> str:
    """The same key, but every second process means another body."""
    body = arena.number % 2
    try:
        return f"{body} {arena.submit(key='once', gpu=1, licence=body + 1).id}"
    except Refusal as no:
        return f"{body} {no.code}"


def send_the_same_id(arena: Arena) -> str:
    """The same id, without a key."""
    one = arena.submit(own_id="once", gpu=1)
    return f"{one.id} {one.status} {one.number} {one.fence}"


def one_holds_one_waits(arena: Arena) -> None:
    """Somebody holds the unit, and another waits for it."""
    arena.fresh()
    arena.submit(own_id="holder", gpu=1, lease_s=LEASE_S)
    arena.submit("u", own_id="waiter", gpu=1)


def release(arena: Arena) -> str:
    """Give the unit back."""
    return arena.ledger.release(arena.workspace, "holder", 1).status


def end_it_somehow(arena: Arena) -> str:
    """Release it, drop it, let its lease lapse, or prolong that."""
    ways: list[tuple[str, Callable[[], object]]] = [
        ("release", lambda: release(arena)),
        ("drop", lambda: arena.ledger.drop(arena.workspace, "holder").status),
        ("sweep", lambda: arena.late(LEASE_S + 1).ledger.clean_up(arena.workspace).expired_leases),
        ("heartbeat", lambda: arena.ledger.heartbeat(arena.workspace, "holder", 1).status),
    ]
    name, way = ways[arena.number % len(ways)]
    try:
        return f"{name} {way()}"
    except Refusal as no:
        return f"{name} {no.code}"


def cancel_or_grant(arena: Arena) -> str:
    """The holder gives the unit back while the waiter leaves."""
    if arena.number % 2:
        return f"release {release(arena)}"
    try:
        return f"cancel {arena.ledger.cancel(arena.workspace, 'waiter').status}"
    except Refusal as no:
        return f"cancel {no.code}"


def half_a_change(arena: Arena) -> None:
    """A pool has grown, waiters are to be ranked anew and some fit nowhere any more; of all that hardly anything is done."""
    arena.fresh()
    for each in range(12):
        arena.submit("tu"[each % 2], gpu=1, licence=1 + each // 4)
    arena.ledger = Forgetful(arena.client, arena.clock, LedgerLimits(chunk=arena.chunk))
    arena.policy("u", limit={"licence": 2}, reserved={"licence": 1}, priority=3)
    arena.update_pool(gpu=4)
    arena.ledger = Ledger(arena.client, arena.clock, LedgerLimits(chunk=arena.chunk))


def go_on(arena: Arena) -> str:
    """Go on with it until nothing is left."""
    rounds = 1
    while arena.ledger.resume_unfinished(arena.workspace):
        rounds += 1
    return str(rounds)


def be_patient(arena: Arena) -> str:
    """Long after, give the pool's one hold."""
    return str(arena.late(PATIENCE_S + 1).ledger.give_patience_hold(arena.workspace, "p"))


DUELS: Final = {
    "the last unit": Duel(Arena.fresh, take),
    "the same key": Duel(Arena.fresh, send_the_same),
    "the same key for two bodies": Duel(Arena.fresh, send_another),
    "the same id": Duel(Arena.fresh, send_the_same_id),
    "the same release": Duel(one_holds_one_waits, release),
    "release, drop, lapse, heartbeat": Duel(one_holds_one_waits, end_it_somehow),
    "cancel or grant": Duel(one_holds_one_waits, cancel_or_grant),
    "the same unfinished work": Duel(half_a_change, go_on, chunk=1),
    "the one hold": Duel(one_holds_one_waits, be_patient),
}


def race(url: str, number: int, name: str, rounds: int, barrier: Any) -> list[tuple[str, Any]]:
    """What one process was answered in each round; number 0 also says what became of it."""
    duel, seen = DUELS[name], []
    arena = Arena(url, number, duel.chunk)
    for _ in range(rounds):
        if number == 0:
            duel.prepare(arena)
        barrier.wait(60)
        answer = duel.act(arena)
        barrier.wait(60)
        seen.append((answer, arena.outcome() if number == 0 else None))
    return seen
