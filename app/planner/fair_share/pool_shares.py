"""Each one's part of a pool by fair shares, as somebody uses and asks so much: as it is, or as it will be.

`Parts` is the division of the pool for one state of it. What is there of a state is only who uses how much, and of whom how
much runs in which order; what all of them ask is the same in every state, as who is stopped asks again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from app.domain.amounts import Amounts
from app.domain.snapshot import Account, Allocation, Snapshot
from app.planner.account_tree import POLICY, Tree
from app.planner.fair_share import satisfaction
from app.planner.fair_share.preemptible_split import Split, split
from app.planner.fair_share.share_tree import Branch, Leaf
from app.planner.fair_share.starvation import Patience, inherit, of_pool
from app.planner.fair_share.water_filling import Division, Node, divide

Uses: TypeAlias = Mapping[str, Amounts]
"""Component → what it uses of each key of the pool."""


class Ground:
    """What does not change as a pool is judged: who is below whom, what everybody asks, and how patient they are."""

    def __init__(self, snapshot: Snapshot, tree: Tree) -> None:
        self.tree = tree
        self.accounts = snapshot.accounts
        self.capacity = tree.pool.limit
        self.children: dict[str, list[Account]] = defaultdict(list)
        """Account → the groups and policies directly below it, in the order of a fifo group."""
        for account in sorted(snapshot.accounts.values(), key=_in_line):
            if account.parent is not None:
                self.children[account.parent].append(account)
        self.patience: dict[str, Patience] = {}
        self._inherit(tree.pool, of_pool(tree.pool.said))
        self.used = {component: self._listed(tree.policy(component).used) for component in tree.paths}
        self.waiting = {component: wanted.waiting for component, wanted in snapshot.demand.items()}
        self.demand: dict[str, Amounts] = {}
        """What each policy asks: what it uses and what waits."""
        for component, used in self.used.items():
            asked = snapshot.demand[component].units if component in snapshot.demand else {}
            self.demand[component] = {key: used.get(key, 0) + asked.get(key, 0) for key in self.capacity}

    def tree_of(self, uses: Uses) -> Branch:
        """The whole pool as it is divided."""
        return self._branch(self.tree.pool, uses)

    def _inherit(self, account: Account, own: Patience) -> None:
        self.patience[account.name] = own
        for child in self.children[account.name]:
            self._inherit(child, inherit(own, child.said, is_policy=child.name.startswith(POLICY)))

    def _branch(self, account: Account, uses: Uses) -> Branch:
        children = tuple(
            self._leaf(child, uses) if child.name.startswith(POLICY) else self._branch(child, uses)
            for child in self.children[account.name]
        )
        is_pool = account is self.tree.pool
        return Branch(
            name=account.name,
            weight=account.weight,
            mode="fifo" if account.mode == "fifo" else "fair_share",
            children=children,
            guarantee=account.limit if is_pool else account.reserved,
            limit=account.limit,
        )

    def _leaf(self, account: Account, uses: Uses) -> Leaf:
        component = account.name.removeprefix(POLICY)
        usage, demand = uses[component], self.demand[component]
        return Leaf(account.name, account.weight, usage, _most(usage, demand), account.reserved, account.limit)

    def _listed(self, amounts: Amounts) -> Amounts:
        return {key: amounts.get(key, 0) for key in self.capacity}


class Parts:
    """Everybody's part in one state of a pool."""

    def __init__(self, ground: Ground, uses: Uses) -> None:
        self.ground = ground
        self.uses = uses
        self.division: Division = divide(ground.capacity, ground.tree_of(uses))

    @property
    def scale(self) -> int:
        """What the whole pool is."""
        return self.division.scale

    def node(self, account: str) -> Node:
        """The shares of the pool, a group or a policy."""
        return self.division.nodes[account]

    def is_below(self, account: str) -> bool:
        """Whether it has less than it is due."""
        tolerance = self.ground.patience[account].tolerance
        return satisfaction.is_below(self.node(account), tolerance, self.scale, account.startswith(POLICY))

    def share(self, amounts: Amounts) -> tuple[int, ...]:
        """Amounts as shares."""
        return self.division.share(amounts)

    def fits_within(self, component: str, amounts: Amounts) -> bool:
        """Whether so much more of a policy still lies within its fair share."""
        node, slack = self.node(POLICY + component), self.scale // satisfaction.EQUAL
        more = self.share(amounts)
        return all(used + units <= due + slack for used, units, due in zip(node.usage, more, node.fair, strict=True) if units)

    def split(self, component: str, running: Sequence[Allocation]) -> Split:
        """How what a policy runs is split."""
        account = POLICY + component
        return split(running, self.node(account), self.division, self.ground.patience[account])


def moved(uses: Uses, component: str, amounts: Amounts, sign: int) -> Uses:
    """The same, but for one policy, which uses so much more or less."""
    changed = {key: units + sign * amounts.get(key, 0) for key, units in uses[component].items()}
    return {**uses, component: changed}


def by_component(allocations: Iterable[Allocation]) -> dict[str, list[Allocation]]:
    """Who runs and is not leaving, by policy, in order of grant."""
    running: dict[str, list[Allocation]] = defaultdict(list)
    for holder in allocations:
        if holder.leaving_for is None:
            running[holder.component].append(holder)
    return running


def _in_line(account: Account) -> tuple[int, int, str]:
    """The order of a fifo group's children: 1. the greatest weight 2. the eldest 3. name."""
    return -account.weight, account.born, account.name


def _most(one: Amounts, other: Amounts) -> Amounts:
    return {key: max(units, other.get(key, 0)) for key, units in one.items()}
