"""Who lies beyond its share, so that others could take from it."""

from __future__ import annotations

from app.domain.snapshot import Snapshot
from app.planner.account_tree import Tree
from app.planner.borrowing import NEVER, Shares
from app.planner.fair_share.pool_shares import Ground, Parts, by_component
from app.planner.preemption.protection import Protection


def exposed(snapshot: Snapshot) -> frozenset[str]:
    """The allocations that lie beyond their policy's share, and are not safe from everybody."""
    tree = Tree(snapshot.accounts)
    if snapshot.terms.discipline == "fair_share":
        return frozenset(_fairly(snapshot, tree))
    guard = Protection(snapshot.terms, snapshot.now_ms).of
    shares = Shares(snapshot, tree, guard, frozenset())
    found = set[str]()
    for component in tree.paths:
        for kind in shares.holdings(component).kinds:
            if not kind.traits.is_in_share(0) and kind.traits.protected not in NEVER:
                found.update(kind.members)
    return frozenset(found)


def _fairly(snapshot: Snapshot, tree: Tree) -> set[str]:
    ground = Ground(snapshot, tree)
    parts = Parts(ground, ground.used)
    found = set[str]()
    for component, running in by_component(snapshot.allocations).items():
        cut = parts.split(component, running)
        found |= {*cut.preemptible, *cut.aggressively_preemptible}
    return found
