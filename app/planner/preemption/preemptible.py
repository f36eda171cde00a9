"""The allocations beyond their policy's share, which other policies may preempt."""

from __future__ import annotations

from app.domain.snapshot import PoolSnapshot
from app.planner.account_tree import AccountTree
from app.planner.borrowing import LASTING_PROTECTIONS, BorrowingIndex
from app.planner.fair_share.pool_shares import FairShareInputs, FairShares, allocations_by_component
from app.planner.preemption.protection import Protection


def find_preemptible(snapshot: PoolSnapshot) -> frozenset[str]:
    """Return the ids of the allocations beyond their policy's share that have no lasting protection."""
    tree = AccountTree(snapshot.accounts)
    if snapshot.settings.discipline == "fair_share":
        return frozenset(_find_by_fair_share(snapshot, tree))
    find_protection = Protection(snapshot.settings, snapshot.now_ms).reason
    borrowing = BorrowingIndex(snapshot, tree, find_protection, frozenset())
    preemptible = set[str]()
    for component in tree.paths:
        for allocation_class in borrowing.policy_allocations(component).classes:
            if not allocation_class.traits.is_in_share(0) and allocation_class.traits.protection not in LASTING_PROTECTIONS:
                preemptible.update(allocation_class.members)
    return frozenset(preemptible)


def _find_by_fair_share(snapshot: PoolSnapshot, tree: AccountTree) -> set[str]:
    inputs = FairShareInputs(snapshot, tree)
    shares = FairShares(inputs, inputs.usage)
    preemptible = set[str]()
    for component, allocations in allocations_by_component(snapshot.allocations).items():
        split = shares.split(component, allocations)
        preemptible |= {*split.preemptible, *split.aggressively_preemptible}
    return preemptible
