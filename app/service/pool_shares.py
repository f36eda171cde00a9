"""The shares of a pool for people: demand, usage and fair share of each account, computed as the planner does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from app.domain.amounts import Amounts
from app.domain.errors import NotFound, StoreUnavailable
from app.domain.pool_shares import ShareAccount
from app.domain.snapshot import AccountSnapshot, PoolSnapshot
from app.planner.account_tree import POLICY, AccountTree
from app.planner.borrowing import LASTING_PROTECTIONS
from app.planner.fair_share import satisfaction
from app.planner.fair_share.pool_shares import FairShareInputs, FairShares, allocations_by_component
from app.planner.fair_share.preemptible_split import PreemptibleSplit
from app.planner.fair_share.publication import starvation_states
from app.planner.fair_share.starvation import StarvationState
from app.planner.preemption.protection import Protection
from app.store.ledger import Ledger
from app.store.plan_store import PlanStore
from app.store.snapshot_reader import UnfinishedWork

MAX_CALLS = 50
"""The most bounded calls that resume unfinished work before the pool is read."""


class PoolShares:
    """The shares of every pool."""

    def __init__(self, plan_store: PlanStore, ledger: Ledger) -> None:
        self._plan_store, self._ledger = plan_store, ledger

    def get(self, workspace: str, pool: str) -> tuple[ShareAccount, ...]:
        """Return the shares of the pool, its groups and policies: depth first, groups before policies, by name.

        After a change of the pool, the unfinished work on its queue is resumed first. Raise StoreUnavailable if that takes too
        long."""
        for _ in range(MAX_CALLS):
            try:
                snapshot = self._plan_store.read_snapshot(workspace, pool, even_if_idle=True)
            except UnfinishedWork:
                self._ledger.resume_all_unfinished(workspace, 1)
                continue
            if snapshot is None:
                raise NotFound("pool", pool)
            return tuple(_SharesTable(pool, snapshot).rows())
        raise StoreUnavailable("busy", f"pool {pool} was changed, and its queue is still being put in order")


class _SharesTable:
    def __init__(self, pool: str, snapshot: PoolSnapshot) -> None:
        self._pool, self._snapshot = pool, snapshot
        tree = AccountTree(snapshot.accounts)
        self._root = tree.pool
        self._inputs = FairShareInputs(snapshot, tree)
        self._shares = FairShares(self._inputs, self._inputs.usage)
        self._states = starvation_states(snapshot, self._shares) if snapshot.settings.discipline == "fair_share" else {}
        self._allocations = allocations_by_component(snapshot.allocations)
        self._satisfaction: dict[str, float | None] = {}
        self._protection_reason = Protection(snapshot.settings, snapshot.now_ms).reason

    def rows(self) -> Iterator[ShareAccount]:
        """Yield the shares of all accounts, depth first."""
        yield from self._rows_below(self._root)

    def _rows_below(self, account: AccountSnapshot) -> Iterator[ShareAccount]:
        children = sorted(self._inputs.children[account.name], key=_display_order)
        rows = [row for child in children for row in self._rows_below(child)]
        ratios = [self._satisfaction[child.name] for child in children]
        self._satisfaction[account.name] = self._satisfaction_of(account, ratios)
        yield self._row(account)
        yield from rows

    def _satisfaction_of(self, account: AccountSnapshot, below: list[float | None]) -> float | None:
        """Return the satisfaction of a policy, or the least below another account. None is infinite."""
        if not account.name.startswith(POLICY):
            return min((ratio for ratio in below if ratio is not None), default=None)
        ratio = satisfaction.satisfaction_ratio(self._shares.account(account.name), self._shares.scale)
        return None if ratio is None else float(ratio)

    def _row(self, account: AccountSnapshot) -> ShareAccount:
        account_shares, state = self._shares.account(account.name), self._states.get(account.name, StarvationState())
        kind, _, name = account.name.partition(":")
        component = name if kind == "policy" else None
        split = self._split(component) if component else PreemptibleSplit((), (), (), {})
        return ShareAccount(
            name=name.rpartition("/")[2] if component else name or self._pool,
            kind=kind,
            component_type=component.partition("/")[0] if component else None,
            parent=(account.parent or "").partition(":")[2] or None,
            weight=account.weight,
            mode=None if component else account.mode,
            demand=self._units(account_shares.demand),
            usage=self._units(account_shares.usage),
            usage_share=self._fractions(account_shares.usage),
            demand_share=self._fractions(account_shares.demand),
            fair_share=self._fractions(account_shares.fair),
            guarantee_share=self._fractions(account_shares.guarantee),
            limit_share=self._fractions(account_shares.limit),
            satisfaction=self._satisfaction[account.name],
            status=state.status,
            below_since_ms=state.below_ms,
            non_preemptible=split.non_preemptible,
            aggressively_preemptible=split.aggressively_preemptible,
            preemptible=split.preemptible,
        )

    def _split(self, component: str) -> PreemptibleSplit:
        """Return the split that the planner uses, but with all allocations that are never preempted in the first group."""
        allocations = self._allocations.get(component, [])
        split = self._shares.split(component, allocations)
        profile = self._snapshot.accounts[POLICY + component].profile
        never_preemptible = {
            allocation.id for allocation in allocations if self._protection_reason(allocation, profile) in LASTING_PROTECTIONS
        } | set(split.non_preemptible)
        groups = (split.non_preemptible, split.aggressively_preemptible, split.preemptible)
        return PreemptibleSplit(
            tuple(allocation for group in groups for allocation in group if allocation in never_preemptible),
            tuple(allocation for allocation in split.aggressively_preemptible if allocation not in never_preemptible),
            tuple(allocation for allocation in split.preemptible if allocation not in never_preemptible),
            split.usage_before,
        )

    def _units(self, shares: tuple[int, ...]) -> Amounts:
        keys, capacity, scale = self._shares.division.keys, self._inputs.capacity, self._shares.scale
        return {key: share * capacity[key] // scale for key, share in zip(keys, shares, strict=True)}

    def _fractions(self, shares: tuple[int, ...]) -> Mapping[str, float]:
        return {key: share / self._shares.scale for key, share in zip(self._shares.division.keys, shares, strict=True)}


def _display_order(account: AccountSnapshot) -> tuple[bool, str, str]:
    """Return the sort key of an account: 1. groups before policies 2. the name 3. the type."""
    return account.name.startswith(POLICY), account.name.rpartition("/")[2], account.name
