"""The candidates of one pool at one moment: each policy is judged once for all waiters with equal views."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias

from app.domain.snapshot import Allocation, PoolSnapshot
from app.planner.allocation_classes import AllocationClass, PolicyAllocations, VictimTraits
from app.planner.preemption.cost import PreemptionCosts
from app.planner.preemption.ordering import CandidatePosition, classes_order, reserved_order
from app.planner.preemption.rules import Permit, PreemptorView, Rule, list_permits, rules_of
from app.planner.projection import Projection

Candidate: TypeAlias = tuple[CandidatePosition, Allocation, Permit]
"""A candidate: its position, the allocation, and the permit to preempt it."""

Permits: TypeAlias = tuple[Permit, ...]
"""The permits of an allocation class, the preferred first."""


@dataclass(slots=True)
class PolicyCandidates:
    """The candidates of one policy for a waiter with one view."""

    permits: dict[AllocationClass, Permits] = field(default_factory=dict)
    _class_count: int = 0
    _totals: dict[str, int] = field(default_factory=dict)
    _version: int = -1

    def is_fresh(self, policy_allocations: PolicyAllocations) -> bool:
        """True if no allocation of the policy changed since the last refresh."""
        return self._version == policy_allocations.version

    def refresh(
        self,
        policy_allocations: PolicyAllocations,
        permits_by_traits: dict[VictimTraits, Permits],
        judge: Callable[[VictimTraits], Permits],
    ) -> None:
        """Judge the classes that are new since the last refresh, and discard the totals."""
        for allocation_class in policy_allocations.classes[self._class_count :]:
            permits = permits_by_traits.get(allocation_class.traits)
            if permits is None:
                permits = permits_by_traits[allocation_class.traits] = judge(allocation_class.traits)
            if permits:
                self.permits[allocation_class] = permits
        self._class_count = len(policy_allocations.classes)
        self._totals.clear()
        self._version = policy_allocations.version

    def total(self, key: str) -> int:
        """Return the units of a key that all candidates hold together."""
        total = self._totals.get(key)
        if total is None:
            total = self._totals[key] = sum(
                _class_units(allocation_class, permits, key) for allocation_class, permits in self.permits.items()
            )
        return total


@dataclass(slots=True)
class _TakeableUnits:
    """The units of one key that a waiter with one view may preempt in several policies."""

    by_component: dict[str, int]
    total: int
    applied_changes: int
    """The number of entries of the list of changed policies that the units already include."""


class CandidateIndex:
    """The permits that the rules of one pool gave in this pass."""

    def __init__(self, snapshot: PoolSnapshot, projection: Projection, costs: PreemptionCosts) -> None:
        self.rules: tuple[Rule, ...] = rules_of(snapshot.settings)
        self.projection = projection
        self.costs = costs
        self.ranks_by_class = snapshot.settings.discipline == "classes"
        self._allocations = snapshot.allocations
        self._candidates: dict[PreemptorView, dict[str, PolicyCandidates]] = defaultdict(dict)
        self._permits_by_traits: dict[PreemptorView, dict[VictimTraits, Permits]] = defaultdict(dict)
        self._allocations_by_cost: list[Allocation] = []
        self._units_by_policies: dict[tuple[str, int, int, PreemptorView, str], _TakeableUnits] = {}
        self._policies_by_account: dict[str, dict[tuple[int, int], frozenset[str]]] = {}
        self.chains = {allocation.chain for allocation in snapshot.allocations}
        """The chains of the running allocations."""
        policies = ((projection.tree.policy(component).priority, component) for component in projection.tree.paths)
        self._policies_by_priority = [
            (priority, [component for _, component in policies_alike])
            for priority, policies_alike in groupby(sorted(policies), key=lambda policy: policy[0])
        ]

    def policy_candidates(self, component: str, view: PreemptorView) -> PolicyCandidates:
        """Return the candidates of a policy for a waiter with this view, as of now."""
        candidates_by_component = self._candidates[view]
        candidates = candidates_by_component.get(component)
        if candidates is None:
            candidates = candidates_by_component[component] = PolicyCandidates()
        allocations = self.projection.borrowing.policy_allocations(component)
        if not candidates.is_fresh(allocations):
            candidates.refresh(
                allocations, self._permits_by_traits[view], lambda traits: tuple(list_permits(self.rules, view, traits))
            )
        return candidates

    def policies_by_distance_and_priority(self, account: str) -> Mapping[tuple[int, int], frozenset[str]]:
        """Return (number of accounts between, priority) → the components below an account. A waiter whose path meets theirs at
        that account has the same view of all components of an entry."""
        policies = self._policies_by_account.get(account)
        if policies is None:
            tree, components_by_key = self.projection.tree, defaultdict(list)
            for component in tree.components_below[account]:
                distance = tree.paths[component].index(account) - 1
                components_by_key[distance, tree.policy(component).priority].append(component)
            policies = self._policies_by_account[account] = {
                distance_and_priority: frozenset(components) for distance_and_priority, components in components_by_key.items()
            }
        return policies

    def total(self, account: str, distance_and_priority: tuple[int, int], view: PreemptorView, key: str) -> int:
        """Return the units of a key that a waiter with a view may preempt in all policies of one distance and priority."""
        components = self.policies_by_distance_and_priority(account).get(distance_and_priority, frozenset())
        sum_key, changed_policies = (account, *distance_and_priority, view, key), self.projection.borrowing.changed_policies
        units = self._units_by_policies.get(sum_key)
        if units is None:
            parts = {component: self.policy_candidates(component, view).total(key) for component in components}
            units = self._units_by_policies[sum_key] = _TakeableUnits(parts, sum(parts.values()), len(changed_policies))
        elif units.applied_changes < len(changed_policies):
            for component in components.intersection(changed_policies[units.applied_changes :]):
                units_now = self.policy_candidates(component, view).total(key)
                units.total += units_now - units.by_component[component]
                units.by_component[component] = units_now
            units.applied_changes = len(changed_policies)
        return units.total

    def candidates(self, candidates_of: Callable[[str], PolicyCandidates]) -> Iterator[Candidate]:
        """Yield the candidates of all policies in the order of `ordering.py`. They are computed only as far as they are
        read."""
        return self._cheapest_first(candidates_of) if self.ranks_by_class else self._lowest_rank_first(candidates_of)

    def _cheapest_first(self, candidates_of: Callable[[str], PolicyCandidates]) -> Iterator[Candidate]:
        class_of = self.projection.borrowing.class_of
        cost = self.costs.approximate
        for allocation in self._list_by_cost():
            if allocation.id in class_of:
                permits = candidates_of(allocation.component).permits.get(class_of[allocation.id])
                permit = _first_valid_permit(permits, allocation) if permits else None
                if permit is not None:
                    yield classes_order(allocation, cost(allocation)), allocation, permit

    def _list_by_cost(self) -> list[Allocation]:
        if not self._allocations_by_cost:
            grant_order, class_of = self.projection.borrowing.grant_order, self.projection.borrowing.class_of
            for component in self.projection.tree.paths:
                self.projection.borrowing.policy_allocations(component)  # a policy is classified on first use
            allocation_classes = ((allocation, class_of.get(allocation.id)) for allocation in self._allocations)
            candidates = [
                allocation
                for allocation, allocation_class in allocation_classes
                if allocation_class is None or allocation_class.traits.protection is None
            ]
            candidates.sort(key=lambda allocation: grant_order[allocation.id], reverse=True)
            candidates.sort(key=attrgetter("preemption_class"))
            candidates.sort(key=self.costs.approximate)
            self._allocations_by_cost = candidates
        return self._allocations_by_cost

    def _lowest_rank_first(self, candidates_of: Callable[[str], PolicyCandidates]) -> Iterator[Candidate]:
        for priority, components in self._policies_by_priority:
            permits_by_class = [item for component in components for item in candidates_of(component).permits.items()]
            permits_by_class.sort(key=lambda item: item[0].traits.preemption_class)
            for _, classes_alike in groupby(permits_by_class, key=lambda item: item[0].traits.preemption_class):
                yield from merge(
                    *(self._newest_first(priority, allocation_class, permits) for allocation_class, permits in classes_alike),
                    key=position,
                )

    def _newest_first(self, priority: int, allocation_class: AllocationClass, permits: Permits) -> Iterator[Candidate]:
        for allocation in reversed(allocation_class.members.values()):
            permit = _first_valid_permit(permits, allocation)
            if permit is not None:
                yield reserved_order(allocation, priority), allocation, permit


def position(candidate: Candidate) -> CandidatePosition:
    """Return the position of a candidate in the order of candidates."""
    return candidate[0]


def _first_valid_permit(permits: Permits, allocation: Allocation) -> Permit | None:
    """Return the first permit that is valid for this allocation."""
    return next((permit for permit in permits if permit.granted_after is None or allocation.fence > permit.granted_after), None)


def _class_units(allocation_class: AllocationClass, permits: Permits, key: str) -> int:
    if any(permit.granted_after is None for permit in permits):
        return allocation_class.total(key)
    return sum(
        allocation.amounts.get(key, 0)
        for allocation in allocation_class.members.values()
        if _first_valid_permit(permits, allocation)
    )
