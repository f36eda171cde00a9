"""Who is borrowed on which key at which account: the stacks of all policies and groups, and who runs, by kinds.

An account's running allocations are stacked: 1. fixed work 2. in a group, what is in share at its own policy 3. in order of
grant. One that lies at least partly beyond `reserved` is borrowed on that key. Those who are leaving are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

from app.domain.amounts import Amounts
from app.domain.snapshot import Allocation, Snapshot
from app.planner.account_tree import Tree
from app.planner.allocation_classes import Holdings, Kind, Traits
from app.planner.decisions import WhyNot
from app.planner.reserved_stack import NOWHERE, Stack

Guard: TypeAlias = Callable[[Allocation, str], WhyNot | None]
"""Why an allocation of a policy with that profile may not be stopped by anybody."""

NEVER = frozenset({WhyNot.FIXED, WhyNot.CLASS_TEN, WhyNot.SENSITIVE})
"""What forbids to take somebody even if it is leaving already."""

BAND = 1 << 40
"""A place in a stack is a band and an age."""


class Shares:
    """All stacks of a pool, and the running allocations of each policy by kinds; each made when somebody asks about it."""

    def __init__(self, snapshot: Snapshot, tree: Tree, guard: Guard, chains: frozenset[str]) -> None:
        self._tree = tree
        self._guard = guard
        self._chains = chains
        self._by_class = snapshot.terms.discipline == "classes"
        reserving = (account.reserved for account in tree.accounts.values() if account is not tree.pool)
        share_keys = {key for reserved in reserving for key, units in reserved.items() if units > 0}
        self._bits: dict[str, int] = {}
        self._share_bits = {key: self._bit(key) for key in sorted(share_keys)}
        self.keys = self.mask(self._share_bits)
        """The share keys."""
        self.kind_of: dict[str, Kind] = {}
        """Who runs, as far as its policy was asked about → its kind."""
        self.age: dict[str, int] = {}
        self._running: dict[str, dict[str, Allocation]] = {component: {} for component in tree.paths}
        self.moved: list[str] = []
        """The policies of which somebody left, came back or is of another kind now, one after the other."""
        self._disturbed: set[str] = set()
        """Policies to whom somebody came back, out of the order of grant."""
        for place, holder in enumerate(_in_order(snapshot.allocations)):
            self.age[holder.id] = place
            if holder.leaving_for is None:
                self._running[holder.component][holder.id] = holder
        self._bands: dict[str, int] = {}
        self._masks: dict[tuple[str, ...], int] = {}
        self._stacks: dict[str, Stack] = {}
        self._holdings: dict[str, Holdings] = {}

    def mask(self, keys: Iterable[str]) -> int:
        """A set of keys as a mask."""
        mask = 0
        for key in keys:
            mask |= self._bit(key)
        return mask

    def asked(self, amounts: Amounts) -> list[tuple[str, int]]:
        """The share keys among those asked."""
        return [(key, units) for key, units in amounts.items() if key in self._share_bits]

    def holdings(self, component: str) -> Holdings:
        """Who runs under a policy, by kinds."""
        found = self._holdings.get(component)
        if found is None:
            found = self._holdings[component] = Holdings()
            self._sort(component, found)
        return found

    def running(self, component: str) -> list[Allocation]:
        """Who runs under a policy and is not leaving, in order of grant."""
        running = list(self._running[component].values())
        if component in self._disturbed:
            running.sort(key=lambda holder: self.age[holder.id])
        return running

    def placed_back(self, holder: Allocation) -> Traits:
        """The traits of one who is leaving, if it came back; what protects from being told to leave matters no more."""
        self.come_back(holder)
        traits = self.kind_of[holder.id].traits
        self.leave(holder)
        return traits._replace(protected=traits.protected if traits.protected in NEVER else None)

    def beyond(self, holder: Allocation, account: str) -> dict[str, int]:
        """The share keys on which one who runs is borrowed at an account, and by how many units."""
        stack, place = self._stack(account), self._place(holder, account)
        asked = (key for key, _ in self.asked(holder.amounts))
        return {key: stack.beyond(key, place) for key in asked if place >= stack.edges[key]}

    # Leaving and coming back

    def leave(self, holder: Allocation) -> None:
        """It is told to leave: those above it move down."""
        holdings = self.holdings(holder.component)
        holdings.remove(holder, self.kind_of.pop(holder.id))
        self.moved.append(holder.component)
        del self._running[holder.component][holder.id]
        policy, *groups = self._tree.paths[holder.component][:-1]
        changed = self._stack(policy).take(self._place(holder, policy))
        for group in groups:
            changed += self._stack(group).take(self._place(holder, group))
        self._settle(groups, changed)

    def come_back(self, holder: Allocation) -> None:
        """It is called back to its old place: those above it move up."""
        holdings = self.holdings(holder.component)
        self._running[holder.component][holder.id] = holder
        self._disturbed.add(holder.component)
        policy, *groups = self._tree.paths[holder.component][:-1]
        changed = self._stack(policy).put(self._place(holder, policy), holder)
        self._bands[holder.id] = self._band(holder)
        for group in groups:
            changed += self._stack(group).put(self._place(holder, group), holder)
        kind = self.kind_of[holder.id] = holdings.kind(self._now(holder))
        holdings.insert(holder, kind, self.age)
        self.moved.append(holder.component)
        self._settle(groups, changed)

    def _settle(self, groups: Sequence[str], changed: list[Allocation]) -> None:
        """Those whose side changed at a policy get their new place in its groups; then all of them their new kind."""
        for holder in list(changed) if groups else ():
            old, new = self._bands[holder.id], self._band(holder)
            if old != new and self._tree.paths[holder.component][1 : len(groups) + 1] == tuple(groups):
                for group in groups:
                    changed += self._stack(group).take(self._place(holder, group))
                self._bands[holder.id] = new
                for group in groups:
                    changed += self._stack(group).put(self._place(holder, group), holder)
        for holder in changed:
            kind = self.kind_of.get(holder.id)
            if kind is not None:
                self._resort(holder, kind)

    def _resort(self, holder: Allocation, kind: Kind) -> None:
        holdings = self._holdings[holder.component]
        now = holdings.kind(self._now(holder))
        if now is not kind:
            holdings.remove(holder, kind)
            holdings.insert(holder, now, self.age)
            self.moved.append(holder.component)
            self.kind_of[holder.id] = now

    # Stacks

    def _stack(self, account: str) -> Stack:
        found = self._stacks.get(account)
        if found is None:
            found = self._stacks[account] = self._pile(account)
        return found

    def _pile(self, account: str) -> Stack:
        below, age = self._tree.below[account], self.age
        if below and account == self._tree.paths[below[0]][0]:
            running = self._running[below[0]].items()
            placed = {age[name] + BAND if holder.preemptible else age[name]: holder for name, holder in running}
        else:
            placed = {}
            for holder in (holder for component in below for holder in self._running[component].values()):
                band = self._bands[holder.id] = self._band(holder)
                placed[age[holder.id] + BAND * band] = holder
        return Stack(self._tree.accounts[account].reserved, self._share_bits, placed)

    def _place(self, holder: Allocation, account: str) -> int:
        """Where it stands in a stack."""
        if account == self._tree.paths[holder.component][0]:
            return self.age[holder.id] + BAND if holder.preemptible else self.age[holder.id]
        return self.age[holder.id] + BAND * self._bands[holder.id]

    def _band(self, holder: Allocation) -> int:
        """1. fixed 2. in share at its own policy 3. the others."""
        if not holder.preemptible:
            return 0
        stack, place = self._stack(self._tree.paths[holder.component][0]), self.age[holder.id] + BAND
        asked = self.asked(holder.amounts)
        return 1 if asked and all(place < stack.edges[key] for key, _ in asked) else 2

    # Kinds

    def _sort(self, component: str, holdings: Holdings) -> None:
        """Sort all who run under a policy; every allocation of the pool passes here once."""
        kind_of, guard, chains = self.kind_of, self._guard, self._chains
        profile, borrowed_by = self._tree.policy(component).profile, self._borrowed_by(component)
        kinds: dict[tuple[object, ...], Kind] = {}
        for name, holder in self._running[component].items():
            borrowed, protected = borrowed_by(holder), guard(holder, profile)
            chain = holder.chain if holder.chain in chains else None
            alike = (tuple(holder.amounts), borrowed, holder.preemption_class, protected, chain)
            kind = kinds.get(alike)
            if kind is None:
                kind = kinds[alike] = holdings.kind(self._traits(holder, borrowed))
            kind_of[name] = kind
            kind.members[name] = holder

    def _traits(self, holder: Allocation, borrowed: tuple[int, ...]) -> Traits:
        profile = self._tree.policy(holder.component).profile
        return Traits(
            held=self._held(tuple(holder.amounts)),
            shares=self.keys,
            borrowed=borrowed,
            preemption_class=holder.preemption_class,
            protected=self._guard(holder, profile),
            chain=holder.chain if holder.chain in self._chains else None,
            is_service=self._by_class and profile == "service",
        )

    def _now(self, holder: Allocation) -> Traits:
        return self._traits(holder, self._borrowed_by(holder.component)(holder))

    def _borrowed_by(self, component: str) -> Callable[[Allocation], tuple[int, ...]]:
        """What tells on which share keys one under a policy is borrowed, at the policy and at each group above."""
        policy, *groups = self._tree.paths[component][:-1]
        age, policy_edges = self.age, self._edges(policy)
        group_edges = [self._edges(group) for group in groups]

        def borrowed_by(holder: Allocation) -> tuple[int, ...]:
            at = age[holder.id]
            mask = _borrowed(holder, at + BAND if holder.preemptible else at, policy_edges)
            if not group_edges:
                return (mask,)
            place = at + BAND * self._bands[holder.id]
            return (mask, *[_borrowed(holder, place, edges) for edges in group_edges])

        return borrowed_by

    def _edges(self, account: str) -> list[tuple[str, int, int]]:
        edges = self._stack(account).edges
        return [(key, bit, edges[key]) for key, bit in self._share_bits.items() if edges[key] != NOWHERE]

    def _held(self, keys: tuple[str, ...]) -> int:
        held = self._masks.get(keys)
        if held is None:
            held = self._masks[keys] = self.mask(keys)
        return held

    def _bit(self, key: str) -> int:
        return self._bits.setdefault(key, 1 << len(self._bits))


def _borrowed(holder: Allocation, place: int, edges: Iterable[tuple[str, int, int]]) -> int:
    mask = 0
    for key, bit, edge in edges:
        if place >= edge and key in holder.amounts:
            mask |= bit
    return mask


def _in_order(allocations: Sequence[Allocation]) -> Sequence[Allocation]:
    """In order of grant."""
    if all(one.fence < other.fence for one, other in pairwise(allocations)):
        return allocations
    by_id = sorted(allocations, key=lambda holder: holder.id, reverse=True)
    return sorted(by_id, key=lambda holder: holder.fence)
