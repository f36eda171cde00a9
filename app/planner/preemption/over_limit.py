"""Accounts over a limit: the time at which they exceeded it, and the victims that have to leave.

An account is over its limit after the limit, or the capacity of the pool, was lowered below its use. With `over_limit: evict`,
preemptible work beyond the limit is preempted without a waiter, the newest first. If the limit is raised while victims leave,
the victims that no longer exceed it are reprieved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from app.domain.plan_steps import EvictOverLimit, OverLimitVictim
from app.domain.pool_settings import default_value
from app.domain.snapshot import AccountSnapshot, Allocation, PoolSnapshot
from app.planner.account_tree import AccountTree
from app.planner.preemption.ordering import over_limit_order
from app.planner.projection import Projection

LEAVING_FOR_LIMIT = "!"
"""The value of `leaving_for` of a victim that leaves because of a limit."""

MAX_EVICTIONS_PER_STEP = 40
"""The most victims of one step. Further victims follow in the next pass."""


class OverLimitCheck:
    """The limits of a pool, and their settings, at one moment."""

    def __init__(self, snapshot: PoolSnapshot, tree: AccountTree) -> None:
        self._snapshot = snapshot
        self._tree = tree

    def units_over(self, account: AccountSnapshot, units_leaving: Callable[[str, str], int]) -> dict[str, int]:
        """Return key → units of an account above its limit after these units (by account and key) have left."""
        units = (
            (key, used - units_leaving(account.name, key), self._tree.limit(account.name, key))
            for key, used in account.used.items()
        )
        return {key: used - limit for key, used, limit in units if limit is not None and used > limit}

    def over_since(self, account: AccountSnapshot) -> int | None:
        """Return the time (ms) at which an account exceeded a limit that has to be restored; None if it is within its
        limits."""
        if not self.evicts(account) or not self.units_over(account, lambda *_: 0):
            return None
        since = account.published.over_ms
        return self._snapshot.now_ms if since is None else min(since, self._snapshot.now_ms)

    def is_due(self, account: AccountSnapshot) -> bool:
        """True if the account has been over its limit for `over_limit_after_s`."""
        since = self.over_since(account)
        return since is not None and self._snapshot.now_ms - since >= self.after_s(account) * 1000

    def after_s(self, account: AccountSnapshot) -> int:
        """Return the seconds that an account may be over its limit."""
        return int(self._setting(account, "over_limit_after_s") or default_value("over_limit_after_s"))

    def evicts(self, account: AccountSnapshot) -> bool:
        """True if the use beyond the limit of an account is evicted."""
        own = self._setting(account, "over_limit")
        return (own or default_value("over_limit", self._snapshot.settings.discipline)) == "evict"

    def must_leave(self, projection: Projection, allocation: Allocation, account: AccountSnapshot) -> bool:
        """True if the account evicts, and would exceed a limit if this victim stayed and all others left."""
        if not self.evicts(account):
            return False
        bounds = ((key, units, self._tree.limit(account.name, key)) for key, units in allocation.amounts.items())
        return any(
            limit is not None and projection.projected_use(account.name, key, projection.all_holds) + units > limit
            for key, units, limit in bounds
        )

    def _setting(self, account: AccountSnapshot, setting: str) -> str:
        """Return the value of a setting at the nearest account that has it."""
        ancestor: AccountSnapshot | None = account
        while ancestor is not None:
            if setting in ancestor.settings:
                return ancestor.settings[setting]
            ancestor = self._tree.accounts[ancestor.parent] if ancestor.parent else None
        return ""


def find_cancelable_evictions(snapshot: PoolSnapshot, projection: Projection) -> Iterator[Allocation]:
    """Yield the victims that may stay without exceeding the limit for which they leave, the oldest first. The caller counts
    each as staying before it reads the next."""
    limits = OverLimitCheck(snapshot, projection.tree)
    for allocation in snapshot.allocations:
        if allocation.leaving_for == LEAVING_FOR_LIMIT and not any(
            limits.must_leave(projection, allocation, account) for account in _path(projection, allocation)
        ):
            yield allocation


def plan_evictions(
    snapshot: PoolSnapshot, projection: Projection, protection_of: Callable[[Allocation], object], max_victims: int | None
) -> EvictOverLimit | None:
    """Return the step that evicts the use beyond the limits, the newest first, a bounded number at a time. None if no account
    is over a limit."""
    limits = OverLimitCheck(snapshot, projection.tree)
    due = [account for account in snapshot.accounts.values() if limits.is_due(account)]
    if not due:
        return None
    newest = choose_evictions(projection, limits, protection_of, due)[
        : MAX_EVICTIONS_PER_STEP if max_victims is None else min(max_victims, MAX_EVICTIONS_PER_STEP)
    ]
    return (
        EvictOverLimit(tuple(OverLimitVictim(allocation.id, allocation.fence, account.name) for allocation, account in newest))
        if newest
        else None
    )


def choose_evictions(
    projection: Projection,
    limits: OverLimitCheck,
    protection_of: Callable[[Allocation], object],
    accounts: Iterable[AccountSnapshot],
) -> list[tuple[Allocation, AccountSnapshot]]:
    """Return the allocations to evict so that these accounts are within their limits, the newest first.

    Each is returned with the account whose limit it exceeds. The deepest accounts choose first.
    """
    tree, due = projection.tree, sorted(accounts, key=lambda account: (-_depth(account, projection.tree), account.name))
    victims: dict[str, tuple[Allocation, AccountSnapshot]] = {}
    newly_leaving: dict[tuple[str, str], int] = defaultdict(int)

    def count(allocation: Allocation, sign: int) -> None:
        for account in tree.paths[allocation.component]:
            for key, units in allocation.amounts.items():
                newly_leaving[account, key] += sign * units

    def units_leaving(account: str, key: str) -> int:
        return projection.units_leaving(account, key) + newly_leaving.get((account, key), 0)

    candidates = [
        allocation
        for component in tree.paths
        for allocation in projection.borrowing.running(component)
        if protection_of(allocation) is None
    ]
    candidates.sort(key=over_limit_order)
    for account in due:
        candidates_below = (
            allocation
            for allocation in candidates
            if account.name in tree.paths[allocation.component] and allocation.id not in victims
        )
        for allocation in _take_until_within_limit(candidates_below, limits.units_over(account, units_leaving)):
            victims[allocation.id] = allocation, account
            count(allocation, 1)
    for allocation, _ in reversed(_in_order(victims.values())):  # give back each victim that later choices made unnecessary
        count(allocation, -1)
        accounts_above = (account for account in due if account.name in tree.paths[allocation.component])
        if any(limits.units_over(account, units_leaving).keys() & allocation.amounts.keys() for account in accounts_above):
            count(allocation, 1)
        else:
            del victims[allocation.id]
    return _in_order(victims.values())


def _in_order(victims: Iterable[tuple[Allocation, AccountSnapshot]]) -> list[tuple[Allocation, AccountSnapshot]]:
    return sorted(victims, key=lambda victim: over_limit_order(victim[0]))


def _path(projection: Projection, allocation: Allocation) -> list[AccountSnapshot]:
    return [projection.tree.accounts[account] for account in projection.tree.paths[allocation.component]]


def _depth(account: AccountSnapshot, tree: AccountTree) -> int:
    depth, ancestor = 0, account
    while ancestor.parent is not None:
        depth, ancestor = depth + 1, tree.accounts[ancestor.parent]
    return depth


def _take_until_within_limit(newest: Iterable[Allocation], over: dict[str, int]) -> Iterator[Allocation]:
    """Yield in order the allocations that hold a key that is over its limit, until no key is."""
    units_left = dict(over)
    for allocation in newest:
        if not units_left:
            return
        if any(allocation.amounts.get(key, 0) for key in units_left):
            yield allocation
            remaining = {key: units - allocation.amounts.get(key, 0) for key, units in units_left.items()}
            units_left = {key: units for key, units in remaining.items() if units > 0}
