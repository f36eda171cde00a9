"""The books after steps that were planned, for who asks later what was decided by."""

from __future__ import annotations

from collections.abc import Iterable

from app.domain.plan_steps import EvictOverLimit, PlanStep, Preempt, ReassignVictim, Reprieve
from app.domain.snapshot import PoolSnapshot
from app.planner.projection import Projection


def apply_steps(books: Projection, snapshot: PoolSnapshot, steps: Iterable[PlanStep]) -> None:
    """Take steps in the books, one after the other."""
    running = {holder.id: holder for holder in snapshot.allocations}
    askers = {waiter.id: waiter for waiter in (*(hold.owner for hold in snapshot.holds), *snapshot.waiters)}
    for step in steps:
        if isinstance(step, Preempt):
            books.preempt(askers[step.waiter], [running[victim.request] for victim in step.victims])
        elif isinstance(step, EvictOverLimit):
            books.evict(running[victim.request] for victim in step.victims)
        elif isinstance(step, ReassignVictim):
            books.reassign(books.orphaned_victims[step.request], books.holds[step.owner])
        elif isinstance(step, Reprieve):
            if step.request in books.orphaned_victims:
                books.reprieve(books.orphaned_victims[step.request])
            else:
                books.cancel_eviction(running[step.request])
        else:
            books.end_hold(books.holds[step.owner])
