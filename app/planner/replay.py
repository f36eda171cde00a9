"""The books after steps that were planned, for who asks later what was decided by."""

from __future__ import annotations

from collections.abc import Iterable

from app.domain.plan_steps import Evict, PassOn, Reprieve, Step, Stop
from app.domain.snapshot import Snapshot
from app.planner.projection import Books


def replay(books: Books, snapshot: Snapshot, steps: Iterable[Step]) -> None:
    """Take steps in the books, one after the other."""
    running = {holder.id: holder for holder in snapshot.allocations}
    askers = {waiter.id: waiter for waiter in (*(hold.owner for hold in snapshot.holds), *snapshot.waiters)}
    for step in steps:
        if isinstance(step, Stop):
            books.stop(askers[step.waiter], [running[victim.request] for victim in step.victims])
        elif isinstance(step, Evict):
            books.evict(running[victim.request] for victim in step.victims)
        elif isinstance(step, PassOn):
            books.pass_on(books.strays[step.request], books.ways[step.owner])
        elif isinstance(step, Reprieve):
            if step.request in books.strays:
                books.reprieve(books.strays[step.request])
            else:
                books.stay(running[step.request])
        else:
            books.end_hold(books.ways[step.owner])
