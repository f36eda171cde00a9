"""One simulation of a pool's queue: the rules of granting, with random ends of the running allocations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import erf, inf
from random import Random
from typing import NamedTuple

from app.domain.amounts import Amounts
from app.planner.estimates.pool_state import (
    POOL,
    AccountKey,
    EndBasis,
    SimulatedAllocation,
    SimulatedHold,
    SimulatedWaiter,
    SimulationState,
)

ENOUGH_RUN_TIMES = 5
"""The number of run times of a component from which the run times of other components are not used."""
BATCH_CORRELATION = 0.95
"""The correlation of run times in a batch, because the parts of one experiment often end or fail together."""

_NO_UNITS: dict[AccountKey, int] = {}


@dataclass(frozen=True, slots=True)
class SimulatedStart:
    """The start of a waiter in one simulation, and the basis of its time."""

    seconds: float
    basis: EndBasis


@dataclass(slots=True)
class _ActiveHold:
    """A victim hold: the units that its victims still have to free, and the units that they have freed."""

    amounts: Amounts
    account_keys: frozenset[AccountKey]
    freed_units: Counter[AccountKey]
    pending_units: Counter[AccountKey] = field(default_factory=Counter)
    has_ended: bool = False

    def kept_units(self, account_key: AccountKey) -> int:
        """Return the units of an account and key that the hold keeps."""
        return (
            max(0, self.amounts[account_key[1]] - self.pending_units[account_key])
            if account_key in self.account_keys and not self.has_ended
            else 0
        )

    def kept_from_earlier_owners(self, account_key: AccountKey) -> int:
        """Return the units of an account and key that the hold keeps from the owners of earlier holds."""
        return min(self.kept_units(account_key), self.freed_units[account_key])


@dataclass(slots=True)
class _Lane:
    """The waiters of one shape. The owner of a victim hold has a lane of its own."""

    amounts: Amounts
    account_keys: tuple[AccountKey, ...]
    hold: int | None = None
    members: list[int] = field(default_factory=list)
    next_member: int = 0

    @property
    def head(self) -> int | None:
        return self.members[self.next_member] if self.next_member < len(self.members) else None


class _Release(NamedTuple):
    """The units that an allocation frees at its end; for a victim also its end after a reprieve."""

    account_keys: tuple[AccountKey, ...]
    amounts: Amounts
    hold: int | None = None
    end_if_reprieved_s: float = inf
    basis: EndBasis = EndBasis.KNOWN


class WorkLimitExceeded(Exception):  # noqa: N818
    """The simulation needs more work than was allowed."""


class QueueSimulation:
    """One possible future of a pool. With `slow_victims` every victim uses all the time that it may have."""

    def __init__(self, state: SimulationState, count: int, random: Random, *, slow_victims: bool = False) -> None:
        self._state, self._random, self._slow_victims = state, random, slow_victims
        self.work = len(state.allocations)
        """The number of allocations that ran or ended, and of waiters that were examined."""
        self._free_units = dict(state.free_units)
        """The units that are free and that no hold keeps, for requests without a hold."""
        self._basis = EndBasis.KNOWN
        self._batch_factors = defaultdict[int, float](lambda: random.gauss(0, BATCH_CORRELATION**0.5))
        self._holds = [self._active_hold(hold) for hold in state.holds]
        self._patience_hold = state.patience_hold if state.patience_hold and state.patience_hold.owner < count else None
        self._patience_units = self._units_of(self._patience_hold) if self._patience_hold else {}
        """The units that the patience hold keeps from the waiters behind its owner."""
        self._releases: dict[int, _Release] = {}
        self._ends: list[tuple[float, int, EndBasis]] = []
        for number, allocation in enumerate(state.allocations):
            self._add_running(number, allocation)
        heapify(self._ends)
        for hold in self._holds:
            for account_key in hold.account_keys:
                self._free_units[account_key] -= hold.kept_units(account_key)
        self._lanes, self._owner_lanes = self._build_lanes(count)
        self._ready = [(head, number) for number, lane in enumerate(self._lanes) if (head := lane.head) is not None]
        """The lanes that may fit, the first of the queue first."""
        heapify(self._ready)
        self._parked = defaultdict[AccountKey, list[tuple[int, int]]](list)
        """(Account, key) → its parked lanes, as (needed units, lane), the smallest need first."""

    def starts(self, max_work: float = inf) -> Iterator[tuple[int, SimulatedStart]]:
        """Yield the waiters in the order of their starts. Raise WorkLimitExceeded if the simulation needs more than
        `max_work`."""
        now, waiter_count = 0.0, sum(len(lane.members) for lane in (*self._lanes, *self._owner_lanes))
        while True:
            for index in self._start_fitting():
                yield index, SimulatedStart(now, self._basis)
                waiter_count -= 1
                self._begin(index, now)
            if not waiter_count or not self._ends:
                return
            self.work += 1
            if self.work > max_work:
                raise WorkLimitExceeded
            now, number, basis = heappop(self._ends)
            self._basis = max(self._basis, basis)
            self._end(number, now)

    # Allocations

    def _add_running(self, number: int, allocation: SimulatedAllocation) -> None:
        remaining_s, basis = self._remaining_s(allocation, allocation.age_s)
        release = _Release(_bounded_keys(allocation.path, allocation.amounts, self._free_units), allocation.amounts)
        if (leaving := allocation.leaving) is not None:
            hold_number = leaving.hold
            release = _Release(release.account_keys, release.amounts, hold_number, remaining_s, basis)
            remaining_s = leaving.gone_s if self._slow_victims else min(remaining_s, self._random.random() * leaving.due_s)
            basis = min(basis, EndBasis.BOUNDED) if remaining_s == release.end_if_reprieved_s else EndBasis.KNOWN
            for account_key in release.account_keys if hold_number is not None else ():
                if hold_number is not None and account_key in self._holds[hold_number].account_keys:
                    self._holds[hold_number].pending_units[account_key] += allocation.amounts[account_key[1]]
        self._releases[number] = release
        if remaining_s < inf:
            self._ends.append((remaining_s, number, basis))

    def _remaining_s(self, work: SimulatedAllocation | SimulatedWaiter, age_s: float) -> tuple[float, EndBasis]:
        """Return the remaining run time of an allocation in seconds, and its basis."""
        own_run_times = self._state.run_times.get(work.component)
        run_times = own_run_times if own_run_times and own_run_times.total >= ENOUGH_RUN_TIMES else self._state.all_run_times
        quantile = _normal_cdf(self._batch_factors[work.batch] + self._random.gauss(0, (1 - BATCH_CORRELATION) ** 0.5))
        run_time_s = run_times.draw(quantile, age_s) if run_times.total else None
        if work.walltime_s is not None and work.walltime_s > age_s:
            end_s = (
                run_time_s
                if run_time_s is not None and run_times.total >= ENOUGH_RUN_TIMES
                else age_s + quantile * (work.walltime_s - age_s)
            )
            return min(end_s, work.walltime_s) - age_s, EndBasis.KNOWN
        if run_time_s is not None:
            return run_time_s - age_s, EndBasis.GUESS if run_times.total < ENOUGH_RUN_TIMES else EndBasis.KNOWN
        if not run_times.total and work.walltime_s is None:
            return inf, EndBasis.GUESS
        return run_times.guess(quantile, age_s) - age_s, EndBasis.GUESS

    def _begin(self, index: int, now: float) -> None:
        waiter, number = self._state.waiters[index], len(self._state.allocations) + index
        remaining_s, basis = self._remaining_s(waiter, 0.0)
        self._releases[number] = _Release(_bounded_keys(waiter.path, waiter.amounts, self._free_units), waiter.amounts)
        if remaining_s < inf:
            heappush(self._ends, (now + remaining_s, number, basis))

    def _end(self, number: int, now: float) -> None:
        """End an allocation: its units become free. If a victim's hold has ended, the victim is reprieved and runs on."""
        release = self._releases[number]
        hold = None if release.hold is None else self._holds[release.hold]
        if hold and hold.has_ended and release.end_if_reprieved_s > now:
            self._releases[number] = _Release(release.account_keys, release.amounts)
            if release.end_if_reprieved_s < inf:
                heappush(self._ends, (release.end_if_reprieved_s, number, release.basis))
            return
        for account_key in release.account_keys:
            units = freed = release.amounts[account_key[1]]
            if hold and account_key in hold.account_keys:
                kept_before = hold.kept_units(account_key)
                hold.pending_units[account_key] -= units
                hold.freed_units[account_key] += units
                freed -= hold.kept_units(account_key) - kept_before
            self._add_free_units(account_key, freed)

    # Waiters

    def _active_hold(self, hold: SimulatedHold) -> _ActiveHold:
        return _ActiveHold(self._state.waiters[hold.owner].amounts, frozenset(self._units_of(hold)), Counter(hold.freed_units))

    def _units_of(self, hold: SimulatedHold) -> dict[AccountKey, int]:
        amounts = self._state.waiters[hold.owner].amounts
        return {account_key: amounts[account_key[1]] for account_key in _bounded_keys(hold.path, amounts, self._free_units)}

    def _build_lanes(self, count: int) -> tuple[list[_Lane], list[_Lane]]:
        """Return the lanes by shape, and the lanes of the owners of victim holds."""
        owners = {hold.owner: number for number, hold in enumerate(self._state.holds)}
        lanes: dict[tuple[object, ...], _Lane] = {}
        for index, waiter in enumerate(self._state.waiters):
            if index >= count and index not in owners:
                continue
            shape = (waiter.path, tuple(waiter.amounts.items()), owners.get(index))
            lane = lanes.get(shape)
            if lane is None:
                lane = lanes[shape] = _Lane(
                    waiter.amounts, _bounded_keys(waiter.path, waiter.amounts, self._free_units), owners.get(index)
                )
            lane.members.append(index)
        all_lanes = lanes.values()
        return [lane for lane in all_lanes if lane.hold is None], [lane for lane in all_lanes if lane.hold is not None]

    def _start_fitting(self) -> Iterator[int]:
        """Yield the waiters that can start now, one after the other. Each takes its units."""
        may_fit_more = True
        while may_fit_more:
            self._end_unfillable_holds()
            yield from self._start_in_order()
            may_fit_more = self._ends_blocked_patience()

    def _start_in_order(self) -> Iterator[int]:
        owners = [(head, number) for number, lane in enumerate(self._owner_lanes) if (head := lane.head) is not None]
        heapify(owners)
        is_blocked = False
        while owners or (self._ready and not is_blocked):
            is_owner = bool(owners) and (is_blocked or not self._ready or owners[0] < self._ready[0])
            queue, lanes = (owners, self._owner_lanes) if is_owner else (self._ready, self._lanes)
            head, number = heappop(queue)
            lane, self.work = lanes[number], self.work + 1
            shortage = self._first_shortage(lane, head)
            if shortage is not None:
                is_blocked |= self._state.is_strict and shortage[0] == POOL
                if not is_owner:
                    self._park(number, head, shortage)
                continue
            self._take(lane, head)
            if lane.head is not None:
                heappush(queue, (lane.head, number))
            yield head

    def _park(self, number: int, head: int, shortage: AccountKey) -> None:
        """Park a lane until enough units are free at its shortage. In a strict queue, a lane that the pool's capacity blocks
        stays at the front instead."""
        if self._state.is_strict and shortage[0] == POOL:
            heappush(self._ready, (head, number))
            return
        is_bound = self._patience_hold is not None and head > self._patience_hold.owner
        need = self._lanes[number].amounts[shortage[1]] + (self._patience_units.get(shortage, 0) if is_bound else 0)
        heappush(self._parked[shortage], (need, number))

    def _add_free_units(self, account_key: AccountKey, units: int) -> None:
        self._free_units[account_key] += units
        self._unpark(account_key, self._free_units[account_key])

    def _unpark(self, account_key: AccountKey, units: float) -> None:
        parked = self._parked[account_key]
        while parked and parked[0][0] <= units:
            _, number = heappop(parked)
            head = self._lanes[number].head
            if head is not None:
                heappush(self._ready, (head, number))

    def _first_shortage(self, lane: _Lane, head: int) -> AccountKey | None:
        """Return the first account and key of the path that lacks units for a waiter; None if the waiter fits."""
        is_bound = lane.hold is None and self._patience_hold is not None and head > self._patience_hold.owner
        patience_units = self._patience_units if is_bound else _NO_UNITS
        for account_key in lane.account_keys:
            free = self._free_units[account_key] if lane.hold is None else self._free_units_of_owner(lane.hold, account_key)
            if free - patience_units.get(account_key, 0) < lane.amounts[account_key[1]]:
                return account_key
        return None

    def _free_units_of_owner(self, number: int, account_key: AccountKey) -> int:
        """Return the free units for the owner of a hold. An earlier hold counts against the owner in full. A later hold counts
        only with the units that its own victims have freed."""
        kept_by_later = sum(
            later_hold.kept_units(account_key) - later_hold.kept_from_earlier_owners(account_key)
            for later_hold in self._holds[number + 1 :]
        )
        return self._free_units[account_key] + self._holds[number].kept_units(account_key) + kept_by_later

    def _take(self, lane: _Lane, head: int) -> None:
        for account_key in lane.account_keys:
            self._free_units[account_key] -= lane.amounts[account_key[1]]
        lane.next_member += 1
        if self._patience_hold and head == self._patience_hold.owner:
            self._end_patience()
        if lane.hold is not None:
            self._end_hold(lane.hold)

    def _end_hold(self, number: int) -> None:
        """End a hold: the units that it keeps become free for all waiters."""
        hold = self._holds[number]
        for account_key in hold.account_keys:
            self._add_free_units(account_key, hold.kept_units(account_key))
        hold.has_ended = True

    def _end_unfillable_holds(self) -> None:
        """End the holds of owners whose fixed share is used up. They wait on without a hold."""
        for lane in [lane for lane in self._owner_lanes if lane.hold is not None and lane.head is not None]:
            other_keys = [
                account_key for account_key in lane.account_keys if account_key not in self._holds[lane.hold or 0].account_keys
            ]
            if any(self._free_units[account_key] < lane.amounts[account_key[1]] for account_key in other_keys):
                self._end_hold(lane.hold or 0)
                lane.hold = None
                self._owner_lanes.remove(lane)
                self._lanes.append(lane)
                heappush(self._ready, (lane.members[lane.next_member], len(self._lanes) - 1))

    def _ends_blocked_patience(self) -> bool:
        """End the patience hold if a limit blocks its owner. Return True if the hold ended."""
        if self._patience_hold is None:
            return False
        owner = self._state.waiters[self._patience_hold.owner]
        account_keys = [
            account_key for account_key in _bounded_keys(owner.path, owner.amounts, self._free_units) if account_key[0] != POOL
        ]
        if all(self._free_units[account_key] >= owner.amounts[account_key[1]] for account_key in account_keys):
            return False
        self._end_patience()
        return True

    def _end_patience(self) -> None:
        self._patience_hold = None
        for account_key in list(self._parked):
            self._unpark(account_key, inf)


def _normal_cdf(value: float) -> float:
    """Return the part of the standard normal distribution below a value."""
    return 0.5 * (1 + erf(value / 2**0.5))


def _bounded_keys(path: Sequence[str], amounts: Amounts, free_units: Mapping[AccountKey, int]) -> tuple[AccountKey, ...]:
    return tuple((account, key) for account in path for key in amounts if (account, key) in free_units)
