"""The stacks: who is borrowed on which key at which account, and by how much; and the kinds of holders.

An account's running allocations are stacked per key: 1. fixed work 2. in a group, what is in share at its own policy 3. in order
of grant. One that lies at least partly beyond `reserved` is borrowed on that key. Those who are leaving are left out.

Sets of keys are masks: one bit per key. A stack is made when somebody asks about it, and again after somebody left it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

from app.domain.amounts import Amounts
from app.domain.snapshot import Account, Allocation, Snapshot
from app.planner.tree import Tree
from app.planner.verdicts import WhyNot

Guard: TypeAlias = Callable[[Allocation, str], WhyNot | None]
"""Why an allocation of a policy with that profile may not be stopped by anybody."""

NEVER = frozenset({WhyNot.FIXED, WhyNot.CLASS_TEN, WhyNot.SENSITIVE})
"""What forbids to take somebody even if it is leaving already."""


@dataclass(slots=True, eq=False)
class Kind:
    """Allocations of one policy that no rule tells apart."""

    held: int
    """The keys they hold."""
    shares: int
    """The share keys of the pool."""
    borrowed: tuple[int, ...]
    """The share keys on which they are borrowed, at their policy and at each group above."""
    preemption_class: int
    protected: WhyNot | None
    chain: str | None
    is_service: bool
    members: list[Allocation] = field(default_factory=list)
    """In order of grant."""

    def is_in_share(self, level: int) -> bool:
        """Whether they ask a share key and are borrowed on none, at the account that far up their path."""
        return bool(self.held & self.shares) and not self.borrowed[level]

    def is_borrowed(self, short: int, level: int) -> bool:
        """Whether they are borrowed in the sense of the rules, at their policy and that far up: on a short share key that they
        hold; or they hold a short key that is none and are not in share."""
        return self._is_borrowed_at(0, short) and (level == 0 or self._is_borrowed_at(level, short))

    def _is_borrowed_at(self, level: int, short: int) -> bool:
        if short & self.borrowed[level]:
            return True
        return bool(short & self.held & ~self.shares) and not self.is_in_share(level)


class Stack:
    """One account's allocations as they fill its reserved."""

    def __init__(self, account: Account, order: Iterable[Allocation], bits: dict[str, int]) -> None:
        self.over: dict[str, dict[str, int]] = {}
        """Share key → allocation → by how many units it, with what lies below it, is beyond reserved."""
        self.borrowed: dict[str, int] = {}
        """Allocation → the share keys on which it is borrowed."""
        holders = list(order)
        for key, bit in bits.items():
            self._pile(key, bit, account.reserved.get(key, 0), holders)

    def _pile(self, key: str, bit: int, reserved: int, holders: Sequence[Allocation]) -> None:
        pile, over, borrowed = -reserved, self.over.setdefault(key, {}), self.borrowed
        for holder in holders:
            units = holder.amounts.get(key)
            if units:
                pile += units
                if pile > 0:
                    over[holder.id] = pile
                    borrowed[holder.id] = borrowed.get(holder.id, 0) | bit


class Shares:
    """All stacks of a pool, and the running allocations of each policy by kinds."""

    def __init__(self, snapshot: Snapshot, tree: Tree, guard: Guard, chains: frozenset[str]) -> None:
        self._tree = tree
        self._guard = guard
        self._chains = chains
        self._classes = snapshot.terms.discipline == "classes"
        self._bits: dict[str, int] = {}
        reserving = (account.reserved for account in tree.accounts.values() if account is not tree.pool)
        share_keys = {key for reserved in reserving for key, units in reserved.items() if units > 0}
        self._share_bits = {key: self._bit(key) for key in sorted(share_keys)}
        self.keys = self.mask(self._share_bits)
        self._masks: dict[tuple[str, ...], int] = {}
        self._running: dict[str, dict[str, Allocation]] = {component: {} for component in tree.paths}
        self.age: dict[str, int] = {}
        for place, holder in enumerate(_in_order(snapshot.allocations)):
            self.age[holder.id] = place
            if holder.leaving_for is None:
                self._running[holder.component][holder.id] = holder
        self._stacks: dict[str, Stack] = {}
        self._kinds: dict[str, tuple[Kind, ...]] = {}

    def mask(self, keys: Iterable[str]) -> int:
        """A set of keys as a mask."""
        mask = 0
        for key in keys:
            mask |= self._bit(key)
        return mask

    def asked(self, amounts: Amounts) -> list[tuple[str, int]]:
        """The share keys among those asked."""
        return [(key, units) for key, units in amounts.items() if key in self._share_bits]

    def is_running(self, holder: Allocation) -> bool:
        """Whether it is stacked: it holds units and is not leaving."""
        return holder.id in self._running[holder.component]

    def leave(self, holder: Allocation) -> None:
        """It is told to leave: others move down."""
        del self._running[holder.component][holder.id]
        self._forget(holder.component)

    def come_back(self, holder: Allocation) -> None:
        """It is called back to its old place."""
        running = {**self._running[holder.component], holder.id: holder}
        self._running[holder.component] = {name: running[name] for name in sorted(running, key=self.age.__getitem__)}
        self._forget(holder.component)

    def kinds(self, component: str) -> tuple[Kind, ...]:
        """Who runs under a policy, by kinds; the same object as long as nothing moved."""
        found = self._kinds.get(component)
        if found is None:
            found = self._kinds[component] = self._sort(component)
        return found

    def placed_back(self, holder: Allocation) -> Kind:
        """The kind of one who is leaving, if it came back. What protects from being told to leave does not matter any more."""
        self.come_back(holder)
        kind = next(kind for kind in self.kinds(holder.component) if any(member is holder for member in kind.members))
        self.leave(holder)
        return replace(kind, protected=kind.protected if kind.protected in NEVER else None, members=[holder])

    def over(self, holder: Allocation, account: str) -> dict[str, int]:
        """The share keys on which it is borrowed at an account, and by how many units."""
        over = self._stack(account).over
        return {key: piles[holder.id] for key, piles in over.items() if holder.id in piles}

    def _bit(self, key: str) -> int:
        return self._bits.setdefault(key, 1 << len(self._bits))

    def _forget(self, component: str) -> None:
        path = self._tree.paths[component]
        for account in path:
            self._stacks.pop(account, None)
        for neighbour in self._tree.below[path[-2]]:
            self._kinds.pop(neighbour, None)

    def _stack(self, account: str) -> Stack:
        found = self._stacks.get(account)
        if found is None:
            found = self._stacks[account] = Stack(self._tree.accounts[account], self._order(account), self._share_bits)
        return found

    def _order(self, account: str) -> Iterable[Allocation]:
        below = self._tree.below[account]
        if len(below) == 1 and account == self._tree.paths[below[0]][0]:
            holders = self._running[below[0]].values()
            fixed = [holder for holder in holders if not holder.preemptible]
            return [*fixed, *(holder for holder in holders if holder.preemptible)] if fixed else holders
        placed = [
            (self._band(holder), self.age[holder.id], holder) for each in below for holder in self._running[each].values()
        ]
        placed.sort(key=lambda place: place[:2])
        return [holder for _, _, holder in placed]

    def _band(self, holder: Allocation) -> int:
        if not holder.preemptible:
            return 0
        asks_share = self._held(holder) & self.keys
        return 1 if asks_share and holder.id not in self._stack(self._tree.paths[holder.component][0]).borrowed else 2

    def _held(self, holder: Allocation) -> int:
        keys = tuple(holder.amounts)
        held = self._masks.get(keys)
        if held is None:
            held = self._masks[keys] = self.mask(keys)
        return held

    def _sort(self, component: str) -> tuple[Kind, ...]:
        profile = self._tree.policy(component).profile
        service = self._classes and profile == "service"
        levels = [self._stack(account).borrowed for account in self._tree.paths[component][:-1]]
        guard, held_by, chains = self._guard, self._held, self._chains
        found: dict[tuple[object, ...], Kind] = {}
        for holder in self._running[component].values():
            held, protected = held_by(holder), guard(holder, profile)
            borrowed = tuple([level.get(holder.id, 0) for level in levels])
            chain = holder.chain if holder.chain in chains else None
            alike = (held, borrowed, holder.preemption_class, protected, chain)
            kind = found.get(alike)
            if kind is None:
                kind = Kind(held, self.keys, borrowed, holder.preemption_class, protected, chain, service)
                found[alike] = kind
            kind.members.append(holder)
        return tuple(found.values())


def _in_order(allocations: Sequence[Allocation]) -> Sequence[Allocation]:
    """In order of grant."""
    if all(one.fence < other.fence for one, other in pairwise(allocations)):
        return allocations
    by_id = sorted(allocations, key=lambda holder: holder.id, reverse=True)
    return sorted(by_id, key=lambda holder: holder.fence)
