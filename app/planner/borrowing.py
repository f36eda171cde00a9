"""The borrowed keys of each allocation at each account: the stacks of all policies and groups, and allocations by class.

The running allocations of an account are stacked in layers: 1. non-preemptible 2. in a group, those in share at their own
policy 3. the others. Each layer is in order of grant. An allocation that lies at least partly beyond `reserved` is borrowed on
that key. Victims that are leaving are not in the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

from app.domain.amounts import Amounts
from app.domain.snapshot import Allocation, PoolSnapshot
from app.planner.account_tree import AccountTree
from app.planner.allocation_classes import AllocationClass, PolicyAllocations, VictimTraits
from app.planner.decisions import RefusalReason
from app.planner.reserved_stack import NO_EDGE, ReservedStack

ProtectionCheck: TypeAlias = Callable[[Allocation, str], RefusalReason | None]
"""A function that returns why no waiter may preempt an allocation of a policy with that profile."""

LASTING_PROTECTIONS = frozenset({RefusalReason.FIXED, RefusalReason.CLASS_TEN, RefusalReason.SENSITIVE})
"""The protections that also hold for a victim that is leaving already."""

LAYER_SIZE = 1 << 40
"""The number of positions of a layer. A position in a stack combines a layer and a place in the order of grant."""


class BorrowingIndex:
    """The stacks of a pool, and the running allocations of each policy by class. A stack or a class is built on its first
    use."""

    def __init__(
        self, snapshot: PoolSnapshot, tree: AccountTree, find_protection: ProtectionCheck, chains: frozenset[str]
    ) -> None:
        self._tree = tree
        self._find_protection = find_protection
        self._chains = chains
        self._ranks_by_class = snapshot.settings.discipline == "classes"
        reserving = (account.reserved for account in tree.accounts.values() if account is not tree.pool)
        share_keys = {key for reserved in reserving for key, units in reserved.items() if units > 0}
        self._bits: dict[str, int] = {}
        self._share_key_bits = {key: self._bit(key) for key in sorted(share_keys)}
        self.share_keys = self.mask(self._share_key_bits)
        """The share keys of the pool, as a mask."""
        self.class_of: dict[str, AllocationClass] = {}
        """Id of a running allocation → its class, for the policies used so far."""
        self.grant_order: dict[str, int] = {}
        self._allocations: dict[str, dict[str, Allocation]] = {component: {} for component in tree.paths}
        self.changed_policies: list[str] = []
        """The policies with an allocation that left, came back or changed its class, in the sequence of the changes."""
        self._policies_out_of_order: set[str] = set()
        """Policies with a restored allocation: their lists may no longer be in order of grant."""
        for position, allocation in enumerate(_in_grant_order(snapshot.allocations)):
            self.grant_order[allocation.id] = position
            if allocation.leaving_for is None:
                self._allocations[allocation.component][allocation.id] = allocation
        self._layers: dict[str, int] = {}
        self._masks_by_keys: dict[tuple[str, ...], int] = {}
        self._stacks: dict[str, ReservedStack] = {}
        self._policy_allocations: dict[str, PolicyAllocations] = {}

    def mask(self, keys: Iterable[str]) -> int:
        """Return a set of keys as a mask."""
        mask = 0
        for key in keys:
            mask |= self._bit(key)
        return mask

    def share_amounts(self, amounts: Amounts) -> list[tuple[str, int]]:
        """Return the share keys among these amounts, with their units."""
        return [(key, units) for key, units in amounts.items() if key in self._share_key_bits]

    def policy_allocations(self, component: str) -> PolicyAllocations:
        """Return the running allocations of a policy, by class."""
        policy_allocations = self._policy_allocations.get(component)
        if policy_allocations is None:
            policy_allocations = self._policy_allocations[component] = PolicyAllocations()
            self._classify(component, policy_allocations)
        return policy_allocations

    def running(self, component: str) -> list[Allocation]:
        """Return the running allocations of a policy that are not leaving, in order of grant."""
        running = list(self._allocations[component].values())
        if component in self._policies_out_of_order:
            running.sort(key=lambda allocation: self.grant_order[allocation.id])
        return running

    def traits_if_reprieved(self, allocation: Allocation) -> VictimTraits:
        """Return the traits that a victim would have after a reprieve. A protection counts only if it holds for a leaving
        victim, too."""
        self.restore(allocation)
        traits = self.class_of[allocation.id].traits
        self.remove(allocation)
        return traits._replace(protection=traits.protection if traits.protection in LASTING_PROTECTIONS else None)

    def units_beyond_reserved(self, allocation: Allocation, account: str) -> dict[str, int]:
        """Return the share keys on which a running allocation is borrowed at an account, with the borrowed units of each."""
        stack, position = self._stack(account), self._position(allocation, account)
        keys = (key for key, _ in self.share_amounts(allocation.amounts))
        return {key: stack.units_beyond(key, position) for key in keys if position >= stack.edges[key]}

    # Preempt and reprieve

    def remove(self, allocation: Allocation) -> None:
        """Remove an allocation that starts to leave. The allocations above it move down."""
        policy_allocations = self.policy_allocations(allocation.component)
        policy_allocations.remove(allocation, self.class_of.pop(allocation.id))
        self.changed_policies.append(allocation.component)
        del self._allocations[allocation.component][allocation.id]
        policy, *groups = self._tree.paths[allocation.component][:-1]
        changed = self._stack(policy).remove(self._position(allocation, policy))
        for group in groups:
            changed += self._stack(group).remove(self._position(allocation, group))
        self._update_neighbours(groups, changed)

    def restore(self, allocation: Allocation) -> None:
        """Put a victim back at its old position. The allocations above it move up."""
        policy_allocations = self.policy_allocations(allocation.component)
        self._allocations[allocation.component][allocation.id] = allocation
        self._policies_out_of_order.add(allocation.component)
        policy, *groups = self._tree.paths[allocation.component][:-1]
        changed = self._stack(policy).insert(self._position(allocation, policy), allocation)
        self._layers[allocation.id] = self._layer(allocation)
        for group in groups:
            changed += self._stack(group).insert(self._position(allocation, group), allocation)
        allocation_class = self.class_of[allocation.id] = policy_allocations.class_of(self._current_traits(allocation))
        policy_allocations.insert(allocation, allocation_class, self.grant_order)
        self.changed_policies.append(allocation.component)
        self._update_neighbours(groups, changed)

    def _update_neighbours(self, groups: Sequence[str], changed: list[Allocation]) -> None:
        """Move the allocations that became borrowed or in share at a policy to their new layer in its groups. Then give all
        changed allocations their new class."""
        for allocation in list(changed) if groups else ():
            old, new = self._layers[allocation.id], self._layer(allocation)
            if old != new and self._tree.paths[allocation.component][1 : len(groups) + 1] == tuple(groups):
                for group in groups:
                    changed += self._stack(group).remove(self._position(allocation, group))
                self._layers[allocation.id] = new
                for group in groups:
                    changed += self._stack(group).insert(self._position(allocation, group), allocation)
        for allocation in changed:
            allocation_class = self.class_of.get(allocation.id)
            if allocation_class is not None:
                self._reclassify(allocation, allocation_class)

    def _reclassify(self, allocation: Allocation, allocation_class: AllocationClass) -> None:
        policy_allocations = self._policy_allocations[allocation.component]
        new_class = policy_allocations.class_of(self._current_traits(allocation))
        if new_class is not allocation_class:
            policy_allocations.remove(allocation, allocation_class)
            policy_allocations.insert(allocation, new_class, self.grant_order)
            self.changed_policies.append(allocation.component)
            self.class_of[allocation.id] = new_class

    # Stacks

    def _stack(self, account: str) -> ReservedStack:
        stack = self._stacks.get(account)
        if stack is None:
            stack = self._stacks[account] = self._build_stack(account)
        return stack

    def _build_stack(self, account: str) -> ReservedStack:
        below, grant_order = self._tree.components_below[account], self.grant_order
        if below and account == self._tree.paths[below[0]][0]:
            allocations = self._allocations[below[0]].items()
            allocations_by_position = {
                grant_order[name] + LAYER_SIZE if allocation.preemptible else grant_order[name]: allocation
                for name, allocation in allocations
            }
        else:
            allocations_by_position = {}
            for allocation in (allocation for component in below for allocation in self._allocations[component].values()):
                layer = self._layers[allocation.id] = self._layer(allocation)
                allocations_by_position[grant_order[allocation.id] + LAYER_SIZE * layer] = allocation
        return ReservedStack(self._tree.accounts[account].reserved, self._share_key_bits, allocations_by_position)

    def _position(self, allocation: Allocation, account: str) -> int:
        """Return the position of an allocation in a stack."""
        if account == self._tree.paths[allocation.component][0]:
            return self.grant_order[allocation.id] + LAYER_SIZE if allocation.preemptible else self.grant_order[allocation.id]
        return self.grant_order[allocation.id] + LAYER_SIZE * self._layers[allocation.id]

    def _layer(self, allocation: Allocation) -> int:
        """Return the layer of an allocation: 0 non-preemptible, 1 in share at its own policy, 2 the others."""
        if not allocation.preemptible:
            return 0
        stack, position = self._stack(self._tree.paths[allocation.component][0]), self.grant_order[allocation.id] + LAYER_SIZE
        share_amounts = self.share_amounts(allocation.amounts)
        return 1 if share_amounts and all(position < stack.edges[key] for key, _ in share_amounts) else 2

    # Classes

    def _classify(self, component: str, policy_allocations: PolicyAllocations) -> None:
        """Classify all running allocations of a policy. Every allocation of the pool passes here once."""
        kind_of, find_protection, chains = self.class_of, self._find_protection, self._chains
        profile, borrowed_by = self._tree.policy(component).profile, self._borrowed_by(component)
        classes_by_signature: dict[tuple[object, ...], AllocationClass] = {}
        for name, allocation in self._allocations[component].items():
            borrowed, protected = borrowed_by(allocation), find_protection(allocation, profile)
            chain = allocation.chain if allocation.chain in chains else None
            signature = (tuple(allocation.amounts), borrowed, allocation.preemption_class, protected, chain)
            allocation_class = classes_by_signature.get(signature)
            if allocation_class is None:
                allocation_class = classes_by_signature[signature] = policy_allocations.class_of(
                    self._traits(allocation, borrowed)
                )
            kind_of[name] = allocation_class
            allocation_class.members[name] = allocation

    def _traits(self, allocation: Allocation, borrowed: tuple[int, ...]) -> VictimTraits:
        profile = self._tree.policy(allocation.component).profile
        return VictimTraits(
            keys=self._mask_of(tuple(allocation.amounts)),
            share_keys=self.share_keys,
            borrowed=borrowed,
            preemption_class=allocation.preemption_class,
            protection=self._find_protection(allocation, profile),
            chain=allocation.chain if allocation.chain in self._chains else None,
            is_service=self._ranks_by_class and profile == "service",
        )

    def _current_traits(self, allocation: Allocation) -> VictimTraits:
        return self._traits(allocation, self._borrowed_by(allocation.component)(allocation))

    def _borrowed_by(self, component: str) -> Callable[[Allocation], tuple[int, ...]]:
        """Return the function that returns the share keys on which an allocation of a policy is borrowed, at the policy and at
        each group."""
        policy, *groups = self._tree.paths[component][:-1]
        grant_order, policy_edges = self.grant_order, self._edges(policy)
        group_edges = [self._edges(group) for group in groups]

        def borrowed_by(allocation: Allocation) -> tuple[int, ...]:
            order = grant_order[allocation.id]
            mask = _borrowed(allocation, order + LAYER_SIZE if allocation.preemptible else order, policy_edges)
            if not group_edges:
                return (mask,)
            position = order + LAYER_SIZE * self._layers[allocation.id]
            return (mask, *[_borrowed(allocation, position, edges) for edges in group_edges])

        return borrowed_by

    def _edges(self, account: str) -> list[tuple[str, int, int]]:
        edges = self._stack(account).edges
        return [(key, bit, edges[key]) for key, bit in self._share_key_bits.items() if edges[key] != NO_EDGE]

    def _mask_of(self, keys: tuple[str, ...]) -> int:
        mask = self._masks_by_keys.get(keys)
        if mask is None:
            mask = self._masks_by_keys[keys] = self.mask(keys)
        return mask

    def _bit(self, key: str) -> int:
        return self._bits.setdefault(key, 1 << len(self._bits))


def _borrowed(allocation: Allocation, position: int, edges: Iterable[tuple[str, int, int]]) -> int:
    mask = 0
    for key, bit, edge in edges:
        if position >= edge and key in allocation.amounts:
            mask |= bit
    return mask


def _in_grant_order(allocations: Sequence[Allocation]) -> Sequence[Allocation]:
    if all(older.fence < newer.fence for older, newer in pairwise(allocations)):
        return allocations
    by_id = sorted(allocations, key=lambda allocation: allocation.id, reverse=True)
    return sorted(by_id, key=lambda allocation: allocation.fence)
