"""The accounts of a pool that are over a limit, and the allocations that the planner will evict because of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from app.domain.over_limit import LimitHolder, LimitKind, OverLimitUse
from app.domain.snapshot import AccountSnapshot, Allocation, PoolSnapshot
from app.planner.account_tree import POLICY, AccountTree
from app.planner.borrowing import BorrowingIndex
from app.planner.decisions import RefusalReason
from app.planner.preemption.over_limit import OverLimitCheck, choose_evictions
from app.planner.preemption.protection import Protection
from app.planner.projection import Projection

MAX_REQUESTS = 100
"""The most requests listed for a component, and the most victims listed for an account."""
MAX_HOLDERS = 100


def preview_over_limit(snapshot: PoolSnapshot) -> tuple[OverLimitUse, ...]:
    """Return the use beyond each limit of a pool: the pool first, then groups and policies by name, each key by name."""
    tree = AccountTree(snapshot.accounts)
    limits = OverLimitCheck(snapshot, tree)
    over = {name: units for name, account in snapshot.accounts.items() if (units := limits.units_over(account, _none_leaving))}
    if not over:
        return ()
    preview = _Preview(snapshot, tree, limits, [tree.accounts[name] for name in over])
    order = sorted(over, key=lambda name: (_KINDS.index(_kind(name)), name))
    return tuple(preview.use(tree.accounts[name], key) for name in order for key in sorted(over[name]))


class _Preview:
    """A pool with accounts over a limit, and the victims of the accounts with `over_limit: evict`."""

    def __init__(self, snapshot: PoolSnapshot, tree: AccountTree, limits: OverLimitCheck, over: list[AccountSnapshot]) -> None:
        self._snapshot, self._tree, self._limits = snapshot, tree, limits
        find_protection = Protection(snapshot.settings, snapshot.now_ms).reason
        self._projection = Projection(snapshot, tree, BorrowingIndex(snapshot, tree, find_protection, frozenset()))

        def protection_of(allocation: Allocation) -> RefusalReason | None:
            return find_protection(allocation, tree.policy(allocation.component).profile)

        may_evict = snapshot.settings.max_preemptions_per_minute != 0
        accounts = [account for account in over if may_evict and limits.evicts(account)]
        evictions = choose_evictions(self._projection, limits, protection_of, accounts) if accounts else []
        self._victims = [allocation for allocation, _ in evictions]

    def use(self, account: AccountSnapshot, key: str) -> OverLimitUse:
        """Return the use of one key beyond the limit of an account."""
        tree, limit = self._tree, self._tree.limit(account.name, key)
        assert limit is not None
        evicts = self._limits.evicts(account)
        victims = [
            victim
            for victim in self._victims
            if evicts and account.name in tree.paths[victim.component] and victim.amounts.get(key)
        ]
        units_leaving = self._projection.units_leaving(account.name, key) + sum(victim.amounts[key] for victim in victims)
        return OverLimitUse(
            pool=self._snapshot.pool,
            kind=_kind(account.name),
            name=self._snapshot.pool if account is tree.pool else account.name.partition(":")[2],
            key=key,
            used=account.used[key],
            limit=limit,
            over_limit="evict" if evicts else "keep",
            after_s=self._limits.after_s(account) if evicts else None,
            holders=self._holders(account, key),
            victims=tuple((victim.id, victim.component) for victim in victims[:MAX_REQUESTS]),
            victim_count=len(victims),
            staying=max(0, account.used[key] - units_leaving - limit) if evicts else 0,
        )

    def _holders(self, account: AccountSnapshot, key: str) -> tuple[LimitHolder, ...]:
        """Return the components below an account that use a key: 1. largest part first 2. name."""
        units = {
            component: self._tree.accounts[f"{POLICY}{component}"].used.get(key, 0)
            for component in self._tree.components_below[account.name]
        }
        components = sorted((name for name in units if units[name]), key=lambda name: (-units[name], name))[:MAX_HOLDERS]
        requests = self._requests_by_component(key, frozenset(components))
        return tuple(LimitHolder(name, units[name], requests.get(name, ())) for name in components)

    def _requests_by_component(self, key: str, components: frozenset[str]) -> Mapping[str, tuple[str, ...]]:
        allocations = [each for each in self._snapshot.allocations if each.component in components and each.amounts.get(key)]
        allocations.sort(key=lambda each: (-each.amounts[key], each.fence))
        requests: dict[str, tuple[str, ...]] = {}
        for each in allocations:
            if len(requests.get(each.component, ())) < MAX_REQUESTS:
                requests[each.component] = (*requests.get(each.component, ()), each.id)
        return requests


_KINDS: tuple[LimitKind, ...] = ("pool", "group", "policy")


def _kind(account: str) -> LimitKind:
    return cast(LimitKind, account.partition(":")[0])


def _none_leaving(account: str, key: str) -> int:
    return 0
