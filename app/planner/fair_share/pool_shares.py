"""The fair shares of one pool in one state: the present state, or the state after some preemptions.

A state is the usage of each policy and its allocations in order of grant. The demand is the same in every state, because a
preempted request queues again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from app.domain.amounts import Amounts
from app.domain.snapshot import AccountSnapshot, Allocation, PoolSnapshot
from app.planner.account_tree import POLICY, AccountTree
from app.planner.fair_share import satisfaction
from app.planner.fair_share.preemptible_split import PreemptibleSplit, split_allocations
from app.planner.fair_share.share_tree import Branch, Leaf
from app.planner.fair_share.starvation import StarvationSettings, inherit_settings, read_pool_settings
from app.planner.fair_share.water_filling import AccountShares, Division, divide

UsageByComponent: TypeAlias = Mapping[str, Amounts]
"""Component → its usage of each key of the pool."""


class FairShareInputs:
    """The parts that stay the same in a pass: the tree, and the demand and the starvation settings of every account."""

    def __init__(self, snapshot: PoolSnapshot, tree: AccountTree) -> None:
        self.tree = tree
        self.accounts = snapshot.accounts
        self.capacity = tree.pool.limit
        self.children: dict[str, list[AccountSnapshot]] = defaultdict(list)
        """Account → the groups and policies directly below it, in the order of a fifo group."""
        for account in sorted(snapshot.accounts.values(), key=_fifo_order):
            if account.parent is not None:
                self.children[account.parent].append(account)
        self.starvation_settings: dict[str, StarvationSettings] = {}
        self._inherit(tree.pool, read_pool_settings(tree.pool.settings))
        self.usage = {component: self._of_pool_keys(tree.policy(component).used) for component in tree.paths}
        self.queued_requests = {component: demand.requests for component, demand in snapshot.demand.items()}
        self.demand: dict[str, Amounts] = {}
        """Component → the demand of its policy: the amounts that it uses and that it has queued."""
        for component, used in self.usage.items():
            queued_units = snapshot.demand[component].units if component in snapshot.demand else {}
            self.demand[component] = {key: used.get(key, 0) + queued_units.get(key, 0) for key in self.capacity}

    def share_tree(self, usage: UsageByComponent) -> Branch:
        """Return the tree of the pool for a division."""
        return self._branch(self.tree.pool, usage)

    def _inherit(self, account: AccountSnapshot, own: StarvationSettings) -> None:
        self.starvation_settings[account.name] = own
        for child in self.children[account.name]:
            self._inherit(child, inherit_settings(own, child.settings, is_policy=child.name.startswith(POLICY)))

    def _branch(self, account: AccountSnapshot, usage: UsageByComponent) -> Branch:
        children = tuple(
            self._leaf(child, usage) if child.name.startswith(POLICY) else self._branch(child, usage)
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

    def _leaf(self, account: AccountSnapshot, usage_by_component: UsageByComponent) -> Leaf:
        component = account.name.removeprefix(POLICY)
        usage, demand = usage_by_component[component], self.demand[component]
        return Leaf(account.name, account.weight, usage, _larger(usage, demand), account.reserved, account.limit)

    def _of_pool_keys(self, amounts: Amounts) -> Amounts:
        return {key: amounts.get(key, 0) for key in self.capacity}


class FairShares:
    """The fair share of every account in one state of a pool."""

    def __init__(self, inputs: FairShareInputs, usage: UsageByComponent) -> None:
        self.inputs = inputs
        self.usage = usage
        self.division: Division = divide(inputs.capacity, inputs.share_tree(usage))

    @property
    def scale(self) -> int:
        """Return the share of the whole pool."""
        return self.division.scale

    def account(self, account: str) -> AccountShares:
        """Return the shares of the pool, a group or a policy."""
        return self.division.accounts[account]

    def is_below(self, account: str) -> bool:
        """True if an account is below its fair share."""
        tolerance = self.inputs.starvation_settings[account].tolerance
        return satisfaction.is_below(self.account(account), tolerance, self.scale, account.startswith(POLICY))

    def share(self, amounts: Amounts) -> tuple[int, ...]:
        """Return amounts as shares, one per key."""
        return self.division.share(amounts)

    def fits_within(self, component: str, amounts: Amounts) -> bool:
        """True if a policy stays within its fair share when it uses these amounts more."""
        account_shares, slack = self.account(POLICY + component), self.scale // satisfaction.EQUAL_WITHIN
        more = self.share(amounts)
        return all(
            used + units <= fair + slack
            for used, units, fair in zip(account_shares.usage, more, account_shares.fair, strict=True)
            if units
        )

    def split(self, component: str, running: Sequence[Allocation]) -> PreemptibleSplit:
        """Return the preemptible and the non-preemptible allocations of a policy."""
        account = POLICY + component
        return split_allocations(running, self.account(account), self.division, self.inputs.starvation_settings[account])


def add_usage(usage: UsageByComponent, component: str, amounts: Amounts, sign: int) -> UsageByComponent:
    """Return the usage with the amounts of one policy added (sign 1) or subtracted (sign -1)."""
    changed = {key: units + sign * amounts.get(key, 0) for key, units in usage[component].items()}
    return {**usage, component: changed}


def allocations_by_component(allocations: Iterable[Allocation]) -> dict[str, list[Allocation]]:
    """Return component → its running allocations that are not leaving, in order of grant."""
    allocations_by_component: dict[str, list[Allocation]] = defaultdict(list)
    for allocation in allocations:
        if allocation.leaving_for is None:
            allocations_by_component[allocation.component].append(allocation)
    return allocations_by_component


def _fifo_order(account: AccountSnapshot) -> tuple[int, int, str]:
    """Return the sort key of a child of a fifo group: 1. greatest weight 2. oldest 3. name."""
    return -account.weight, account.creation_number, account.name


def _larger(left: Amounts, right: Amounts) -> Amounts:
    return {key: max(units, right.get(key, 0)) for key, units in left.items()}
