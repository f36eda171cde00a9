"""Fair shares for who looks: what everybody in a pool has, wants and is due just now, worked out as decisions do it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from app.domain.amounts import Amounts
from app.domain.errors import NotFound
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
from app.store.connection import StoreUnavailable
from app.store.ledger import Ledger
from app.store.plan_store import PlanStore, UnfinishedWork

MAX_CALLS = 50
"""Bounded calls that finish what is unfinished, before the pool is looked at."""


class PoolShares:
    """Tells what is whose."""

    def __init__(self, planning: PlanStore, ledger: Ledger) -> None:
        self._planning, self._ledger = planning, ledger

    def get(self, workspace: str, pool: str) -> tuple[ShareAccount, ...]:
        """The pool, its groups and policies, depth first: groups before policies, by name; of a pool that was changed just now
        when that is through. StoreUnavailable if it takes long."""
        for _ in range(MAX_CALLS):
            try:
                seen = self._planning.snapshot(workspace, pool, anyway=True)
            except UnfinishedWork:
                self._ledger.resume_unfinished(workspace)
                continue
            if seen is None:
                raise NotFound("pool", pool)
            return tuple(_Table(pool, seen).rows())
        raise StoreUnavailable("busy", f"pool {pool} was changed, and its queue is still being put in order")


class _Table:
    def __init__(self, pool: str, seen: PoolSnapshot) -> None:
        self._pool, self._seen = pool, seen
        tree = AccountTree(seen.accounts)
        self._root = tree.pool
        self._ground = FairShareInputs(seen, tree)
        self._parts = FairShares(self._ground, self._ground.usage)
        self._states = starvation_states(seen, self._parts) if seen.settings.discipline == "fair_share" else {}
        self._running = allocations_by_component(seen.allocations)
        self._satisfaction: dict[str, float | None] = {}
        self._protects = Protection(seen.settings, seen.now_ms).reason

    def rows(self) -> Iterator[ShareAccount]:
        """All, depth first."""
        yield from self._below(self._root)

    def _below(self, account: AccountSnapshot) -> Iterator[ShareAccount]:
        children = sorted(self._ground.children[account.name], key=_by_name)
        rows = [row for child in children for row in self._below(child)]
        ratios = [self._satisfaction[child.name] for child in children]
        self._satisfaction[account.name] = self._satisfied(account, ratios)
        yield self._row(account)
        yield from rows

    def _satisfied(self, account: AccountSnapshot, below: list[float | None]) -> float | None:
        """Of a policy its own; of others the least below it. None is infinite."""
        if not account.name.startswith(POLICY):
            return min((ratio for ratio in below if ratio is not None), default=None)
        ratio = satisfaction.satisfaction_ratio(self._parts.account(account.name), self._parts.scale)
        return None if ratio is None else float(ratio)

    def _row(self, account: AccountSnapshot) -> ShareAccount:
        node, state = self._parts.account(account.name), self._states.get(account.name, StarvationState())
        kind, _, own = account.name.partition(":")
        component = own if kind == "policy" else None
        split = self._split(component) if component else PreemptibleSplit((), (), (), {})
        return ShareAccount(
            name=own.rpartition("/")[2] if component else own or self._pool,
            kind=kind,
            component_type=component.partition("/")[0] if component else None,
            parent=(account.parent or "").partition(":")[2] or None,
            weight=account.weight,
            mode=None if component else account.mode,
            demand=self._units(node.demand),
            usage=self._units(node.usage),
            usage_share=self._fractions(node.usage),
            demand_share=self._fractions(node.demand),
            fair_share=self._fractions(node.fair),
            guarantee_share=self._fractions(node.guarantee),
            limit_share=self._fractions(node.limit),
            satisfaction=self._satisfaction[account.name],
            status=state.status,
            below_since_ms=state.below_ms,
            non_preemptible=split.non_preemptible,
            aggressively_preemptible=split.aggressively_preemptible,
            preemptible=split.preemptible,
        )

    def _split(self, component: str) -> PreemptibleSplit:
        """As decisions see it; what may never be stopped is told as that, wherever it lies."""
        running = self._running.get(component, [])
        cut = self._parts.split(component, running)
        profile = self._seen.accounts[POLICY + component].profile
        never = {holder.id for holder in running if self._protects(holder, profile) in LASTING_PROTECTIONS} | set(cut.non_preemptible)
        parts = (cut.non_preemptible, cut.aggressively_preemptible, cut.preemptible)
        return PreemptibleSplit(
            tuple(one for part in parts for one in part if one in never),
            tuple(one for one in cut.aggressively_preemptible if one not in never),
            tuple(one for one in cut.preemptible if one not in never),
            cut.usage_before,
        )

    def _units(self, shares: tuple[int, ...]) -> Amounts:
        keys, capacity, scale = self._parts.division.keys, self._ground.capacity, self._parts.scale
        return {key: share * capacity[key] // scale for key, share in zip(keys, shares, strict=True)}

    def _fractions(self, shares: tuple[int, ...]) -> Mapping[str, float]:
        return {key: share / self._parts.scale for key, share in zip(self._parts.division.keys, shares, strict=True)}


def _by_name(account: AccountSnapshot) -> tuple[bool, str, str]:
    """1. groups before policies 2. the name 3. the type."""
    return account.name.startswith(POLICY), account.name.rpartition("/")[2], account.name
