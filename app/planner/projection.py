"""The accounts of a pool now, and after all victims have left. Each planned step moves the projection along.

A planned step does not change `used`, because a victim has left only when the ledger records it. Leaving units are counted
apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from app.domain.amounts import Amounts
from app.domain.plan_steps import EvictOverLimit, PlanStep, Preempt, ReassignVictim, Reprieve
from app.domain.snapshot import Allocation, HoldSnapshot, PoolSnapshot, Waiter
from app.planner.account_tree import AccountTree
from app.planner.borrowing import BorrowingIndex

UnitsByAccountKey: TypeAlias = dict[tuple[str, str], int]
"""(Account, key) → units."""

Deficits: TypeAlias = Mapping[tuple[str, str], int]
"""(Account, key) → units that are short at the account."""


@dataclass(slots=True)
class VictimHold:
    """A victim hold in the projection."""

    owner: Waiter
    freed_units: Mapping[str, Amounts]
    victims: dict[str, Allocation] = field(default_factory=dict)
    pending_units: UnitsByAccountKey = field(default_factory=lambda: defaultdict(int))
    """The units that the victims still have to free."""


@dataclass(slots=True)
class HoldsAhead:
    """The units that the holds of other requests keep from one request. They depend on the position of its own hold."""

    claimed_units: UnitsByAccountKey = field(default_factory=lambda: defaultdict(int))
    """The units that the owners of these holds will use of an account when all victims have left."""
    kept_units: UnitsByAccountKey = field(default_factory=lambda: defaultdict(int))
    """The units of an account that these holds keep free now."""
    fixed_units: UnitsByAccountKey = field(default_factory=lambda: defaultdict(int))
    """The non-preemptible part of `claimed_units`, of earlier holds only."""


class Projection:
    """The accounts of one pool after the steps planned so far."""

    def __init__(self, snapshot: PoolSnapshot, tree: AccountTree, borrowing: BorrowingIndex) -> None:
        self._snapshot = snapshot
        self.tree = tree
        self.borrowing = borrowing
        self.holds: dict[str, VictimHold] = {}
        self.orphaned_victims: dict[str, Allocation] = {}
        """Id → orphaned victim."""
        self.all_holds = HoldsAhead()
        """The holds as they count for a request without a hold."""
        self.version = 0
        """The number of steps applied; it grows with every step."""
        self._leaving_units: UnitsByAccountKey = defaultdict(int)
        self._new_stack_exits: UnitsByAccountKey = defaultdict(int)
        for hold_snapshot in snapshot.holds:
            self._add_hold(hold_snapshot)
        for allocation in snapshot.allocations:
            self._add_leaving(allocation)
        for hold in self.holds.values():
            self._count_as_earlier_hold(self.all_holds, hold, 1)

    def _add_hold(self, hold_snapshot: HoldSnapshot) -> None:
        if hold_snapshot.owner.component in self.tree.paths:
            self.holds[hold_snapshot.owner.id] = VictimHold(hold_snapshot.owner, hold_snapshot.freed_units)

    def _add_leaving(self, allocation: Allocation) -> None:
        if allocation.leaving_for is None:
            return
        if allocation.leaving_for in self.holds:
            self._assign(allocation, self.holds[allocation.leaving_for])
        elif allocation.leaving_for:
            self._add_units(self._leaving_units, allocation, 1)
        else:
            self.orphaned_victims[allocation.id] = allocation

    # Shortages and unused shares

    def deficits(self, waiter: Waiter, holds_ahead: HoldsAhead) -> dict[tuple[str, str], int]:
        """Return the units that are short for a waiter when all victims have left. Orphaned victims do not count as leaving."""
        deficits = {}
        for account in self.tree.paths[waiter.component]:
            for key, units in waiter.amounts.items():
                limit = self.tree.limit(account, key)
                if limit is not None:
                    lacking = self.projected_use(account, key, holds_ahead) + units - limit
                    if lacking > 0:
                        deficits[account, key] = lacking
        return deficits

    def is_fixed_share_used_up(self, waiter: Waiter, holds_ahead: HoldsAhead) -> bool:
        """True if a non-preemptible waiter has to wait for other non-preemptible work of its policy."""
        if waiter.preemptible:
            return False
        policy, listed = self.tree.policy(waiter.component), self.tree.pool.limit
        return any(
            policy.used_fixed.get(key, 0) + holds_ahead.fixed_units.get((policy.name, key), 0) + units
            > policy.reserved.get(key, 0)
            for key, units in waiter.amounts.items()
            if key in listed
        )

    def fits_unused_share(self, waiter: Waiter, account: str, holds_ahead: HoldsAhead) -> bool:
        """True if a waiter fits into the unused share of an account on every share key that it asks. It asks at least one."""
        share_amounts, account_snapshot = self.borrowing.share_amounts(waiter.amounts), self.tree.accounts[account]
        used, kept_units = (
            (account_snapshot.used, holds_ahead.kept_units)
            if waiter.preemptible
            else (account_snapshot.used_fixed, holds_ahead.fixed_units)
        )
        return bool(share_amounts) and all(
            used.get(key, 0) + kept_units.get((account, key), 0) + units <= account_snapshot.reserved.get(key, 0)
            for key, units in share_amounts
        )

    def excess_over_reserved(self, waiter: Waiter, holds_ahead: HoldsAhead) -> list[tuple[str, int]] | None:
        """Return, per share key of a waiter, the units that still have to leave its own policy so that the waiter lies within
        the reserved amounts. None if its amounts exceed them, or if it asks no share key."""
        policy, share_amounts = self.tree.policy(waiter.component), self.borrowing.share_amounts(waiter.amounts)
        if not share_amounts or any(units > policy.reserved.get(key, 0) for key, units in share_amounts):
            return None
        return [
            (key, self.projected_use(policy.name, key, holds_ahead) + units - policy.reserved.get(key, 0))
            for key, units in share_amounts
        ]

    def lacks_capacity(self, waiter: Waiter, holds_ahead: HoldsAhead) -> bool:
        """True if the waiter does not fit into the pool now."""
        return self._is_short_at(waiter, self.tree.pool.name, holds_ahead)

    def is_blocked_by_limit(self, waiter: Waiter) -> bool:
        """True if a limit below the pool, or the fixed share of its policy, blocks the waiter now. Then it blocks no other
        request."""
        no_holds = HoldsAhead()
        return self.is_fixed_share_used_up(waiter, no_holds) or any(
            self._is_short_at(waiter, account, no_holds) for account in self.tree.paths[waiter.component][:-1]
        )

    def _is_short_at(self, waiter: Waiter, account: str, holds_ahead: HoldsAhead) -> bool:
        used, limit = self.tree.accounts[account].used, self.tree.limit
        return any(
            (bound := limit(account, key)) is not None
            and used.get(key, 0) + holds_ahead.kept_units.get((account, key), 0) + units > bound
            for key, units in waiter.amounts.items()
        )

    def projected_use(self, account: str, key: str, holds_ahead: HoldsAhead) -> int:
        """Return the use of an account when all victims have left and the owners of these holds run."""
        account_key = (account, key)
        return (
            self.tree.accounts[account].used.get(key, 0)
            - self._leaving_units.get(account_key, 0)
            + holds_ahead.claimed_units.get(account_key, 0)
        )

    def stack_exits(self, account: str, key: str) -> int:
        """Return the units that the steps so far take from the stack of an account."""
        return self.tree.accounts[account].stack_exits.get(key, 0) + self._new_stack_exits.get((account, key), 0)

    # The order of holds

    def holds_in_order(self) -> Iterator[tuple[VictimHold, HoldsAhead]]:
        """Yield the holds in order, each with the holds that count for its owner: every earlier hold in full, and every later
        hold up to the units that its own victims have freed or will free.

        `HoldsAhead` is one object that changes with each hold: read it before the next hold is requested. Until then, only the
        hold that was just yielded may get more victims or end.
        """
        holds_ahead = HoldsAhead()
        for hold in self.holds.values():
            self._count_as_later_hold(holds_ahead, hold, 1)
        for hold in list(self.holds.values()):
            self._count_as_later_hold(holds_ahead, hold, -1)
            yield hold, holds_ahead
            if hold.owner.id in self.holds:
                self._count_as_earlier_hold(holds_ahead, hold, 1)

    def _count_as_later_hold(self, holds_ahead: HoldsAhead, hold: VictimHold, sign: int) -> None:
        """Count a hold for the owners of earlier holds. It counts only up to the units that its own victims have freed or will
        free, and at most its amounts."""
        for account_key, units in self._units_on_path(hold):
            freed_units = hold.freed_units.get(account_key[0], {}).get(account_key[1], 0)
            holds_ahead.claimed_units[account_key] += sign * min(units, freed_units + hold.pending_units[account_key])
            holds_ahead.kept_units[account_key] += sign * min(units, freed_units)

    def _count_as_earlier_hold(self, holds_ahead: HoldsAhead, hold: VictimHold, sign: int) -> None:
        """Count a hold for the owners of later holds, and for requests without a hold."""
        for account_key, units in self._units_on_path(hold):
            holds_ahead.claimed_units[account_key] += sign * units
            holds_ahead.kept_units[account_key] += sign * max(0, units - hold.pending_units[account_key])
            if not hold.owner.preemptible:
                holds_ahead.fixed_units[account_key] += sign * units

    def _units_on_path(self, hold: VictimHold) -> Iterator[tuple[tuple[str, str], int]]:
        for account in self.tree.paths[hold.owner.component]:
            for key, units in hold.owner.amounts.items():
                yield (account, key), units

    # Steps

    def apply(self, steps: Iterable[PlanStep]) -> None:
        """Apply planned steps in order."""
        snapshot = self._snapshot
        allocations = {allocation.id: allocation for allocation in snapshot.allocations}
        waiters = {waiter.id: waiter for waiter in (*(hold.owner for hold in snapshot.holds), *snapshot.waiters)}
        for step in steps:
            if isinstance(step, Preempt):
                self.preempt(waiters[step.waiter], [allocations[victim.request] for victim in step.victims])
            elif isinstance(step, EvictOverLimit):
                self.evict(allocations[victim.request] for victim in step.victims)
            elif isinstance(step, ReassignVictim):
                self.reassign(self.orphaned_victims[step.request], self.holds[step.owner])
            elif isinstance(step, Reprieve):
                if step.request in self.orphaned_victims:
                    self.reprieve(self.orphaned_victims[step.request])
                else:
                    self.cancel_eviction(allocations[step.request])
            else:
                self.end_hold(self.holds[step.owner])

    def preempt(self, waiter: Waiter, victims: Iterable[Allocation]) -> None:
        """Preempt victims for a waiter. The waiter keeps its hold, or gets a hold behind all others."""
        hold = self.holds.get(waiter.id)
        if hold is None:
            hold = self.holds[waiter.id] = VictimHold(waiter, {})
        else:
            self._count_as_earlier_hold(self.all_holds, hold, -1)
        for victim in victims:
            self._start_leaving(victim)
            self._assign(victim, hold)
        self._count_as_earlier_hold(self.all_holds, hold, 1)
        self.version += 1

    def evict(self, victims: Iterable[Allocation]) -> None:
        """Preempt victims without a waiter."""
        for victim in victims:
            self._start_leaving(victim)
            self._add_units(self._leaving_units, victim, 1)
        self.version += 1

    def _start_leaving(self, victim: Allocation) -> None:
        self.borrowing.remove(victim)
        for account in self.tree.paths[victim.component][:-1]:
            for key, units in victim.amounts.items():
                self._new_stack_exits[account, key] += units

    def units_leaving(self, account: str, key: str) -> int:
        """Return the units of a key that the victims at an account will free. Orphaned victims are not counted."""
        return self._leaving_units.get((account, key), 0)

    def reassign(self, orphan: Allocation, hold: VictimHold) -> None:
        """Give an orphaned victim to the owner of another hold."""
        del self.orphaned_victims[orphan.id]
        self._count_as_earlier_hold(self.all_holds, hold, -1)
        self._assign(orphan, hold)
        self._count_as_earlier_hold(self.all_holds, hold, 1)
        self.version += 1

    def reprieve(self, orphan: Allocation) -> None:
        """Reprieve an orphaned victim."""
        del self.orphaned_victims[orphan.id]
        self._restore(orphan)

    def cancel_eviction(self, allocation: Allocation) -> None:
        """Reprieve a victim that is leaving because of a limit."""
        self._add_units(self._leaving_units, allocation, -1)
        self._restore(allocation)

    def _restore(self, allocation: Allocation) -> None:
        policy, *groups = self.tree.paths[allocation.component][:-1]
        for group in groups:  # as in the ledger: this many units that were in share may be borrowed now
            for key, units in self.tree.accounts[policy].reserved.items():
                self._new_stack_exits[group, key] += units
        self.borrowing.restore(allocation)
        self.version += 1

    def end_hold(self, hold: VictimHold) -> None:
        """End a hold. Its victims are orphaned."""
        self._count_as_earlier_hold(self.all_holds, hold, -1)
        del self.holds[hold.owner.id]
        for allocation in hold.victims.values():
            self.orphaned_victims[allocation.id] = allocation
            self._add_units(self._leaving_units, allocation, -1)
        self.version += 1

    def _assign(self, allocation: Allocation, hold: VictimHold) -> None:
        hold.victims[allocation.id] = allocation
        self._add_units(hold.pending_units, allocation, 1)
        self._add_units(self._leaving_units, allocation, 1)

    def _add_units(self, units_by_account_key: UnitsByAccountKey, allocation: Allocation, sign: int) -> None:
        for account in self.tree.paths[allocation.component]:
            for key, units in allocation.amounts.items():
                units_by_account_key[account, key] += sign * units
