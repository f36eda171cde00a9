"""Use beyond limits, at present or after a declaration: its amount, its components and owners, and its evictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from app.domain import amounts
from app.domain.amounts import Amounts
from app.domain.declaration import GroupDeclaration, PolicyDeclaration, PoolDeclaration, export_pool
from app.domain.errors import StoreUnavailable
from app.domain.models import Pool
from app.domain.over_limit import LimitHolder, OverLimitUse, new_over_limit
from app.domain.pool_settings import ACCOUNT_SETTINGS, default_value
from app.domain.request_origin import owner
from app.domain.snapshot import AccountSnapshot, PoolSnapshot
from app.planner.account_tree import POLICY
from app.planner.preemption.over_limit_preview import preview_over_limit
from app.store.ledger import Ledger
from app.store.plan_store import PlanStore
from app.store.queries import QueryStore
from app.store.snapshot_reader import UnfinishedWork

MAX_CALLS = 50
"""The most bounded calls that resume unfinished work before a pool is read."""
MAX_REQUESTS = 100
"""The most requests whose owners are read."""


class OverLimitReader:
    """The reader of the use beyond limits."""

    def __init__(self, plan_store: PlanStore, ledger: Ledger, query_store: QueryStore) -> None:
        self._plan_store, self._ledger, self._query_store = plan_store, ledger, query_store

    def read(self, workspace: str, pool: str) -> tuple[OverLimitUse, ...]:
        """Return the use of a pool beyond its limits; an empty tuple if there is no such pool."""
        snapshot = self._snapshot(workspace, pool)
        return self._with_owners(workspace, preview_over_limit(snapshot)) if snapshot else ()

    def read_if_over(self, workspace: str, pool: Pool) -> tuple[OverLimitUse, ...]:
        """Return the use of a pool beyond its limits. The snapshot is read only if there is such use."""
        return self.read(workspace, pool.name) if _exceeds(pool, export_pool(pool)) else ()

    def compare(self, workspace: str, pool: Pool, declared: PoolDeclaration) -> tuple[OverLimitUse, ...]:
        """Return the use beyond limits that a declaration would make larger, or for which it would change `over_limit`. The
        snapshot is read only if the use is beyond a declared limit."""
        if not _exceeds(pool, declared):
            return ()
        snapshot = self._snapshot(workspace, pool.name)
        if snapshot is None:
            return ()
        declared_uses = preview_over_limit(_with_declaration(snapshot, declared, _declared_policies(pool, declared)))
        return self._with_owners(workspace, new_over_limit(preview_over_limit(snapshot), declared_uses))

    def _snapshot(self, workspace: str, pool: str) -> PoolSnapshot | None:
        for _ in range(MAX_CALLS):
            try:
                return self._plan_store.read_snapshot(workspace, pool, even_if_idle=True)
            except UnfinishedWork:
                self._ledger.resume_all_unfinished(workspace, 1)
        raise StoreUnavailable("busy", f"pool {pool} was changed, and its queue is still being put in order")

    def _with_owners(self, workspace: str, uses: Sequence[OverLimitUse]) -> tuple[OverLimitUse, ...]:
        ids = list(dict.fromkeys(request for use in uses for holder in use.holders for request in holder.requests))
        if not ids:
            return tuple(uses)
        requests = {request.id: request for request in self._query_store.get_requests(workspace, ids[:MAX_REQUESTS])}

        def with_owners(holder: LimitHolder, key: str) -> LimitHolder:
            units = Counter[str]()
            for request in (requests[id_] for id_ in holder.requests if id_ in requests):
                units[owner(request.labels)] += request.resources.get(key, 0)
            return replace(holder, owners=tuple(name for name, _ in units.most_common() if name))

        return tuple(replace(use, holders=tuple(with_owners(holder, use.key) for holder in use.holders)) for use in uses)


def _exceeds(pool: Pool, declared: PoolDeclaration) -> bool:
    """True if the use of a pool is beyond its declared capacity or a declared limit."""
    accounts = [(pool.used, declared.capacity, True)]
    accounts += [(pool.groups[each.name].used, each.limit, False) for each in declared.groups if each.name in pool.groups]
    policies = _declared_policies(pool, declared)
    accounts += [(pool.policies[name].used, each.limit, False) for name, each in policies.items() if name in pool.policies]
    return any(_is_beyond(used, limit, is_pool) for used, limit, is_pool in accounts)


def _is_beyond(used: Amounts, limit: Amounts, is_pool: bool) -> bool:
    """True if a key is used beyond its limit. A key without a limit is unbounded, but a pool (`is_pool`) has 0 units of it."""
    return any(units > limit.get(key, 0 if is_pool and key not in amounts.UNBOUNDED else units) for key, units in used.items())


def _declared_policies(pool: Pool, declared: PoolDeclaration) -> dict[str, PolicyDeclaration]:
    """Return policy → its declaration; for an instance, that of its template."""
    policies = {each.name: each for each in declared.policies}
    instances = {each.name: policies[each.template] for each in pool.policies.values() if each.template in policies}
    return instances | policies


def _with_declaration(
    snapshot: PoolSnapshot, declared: PoolDeclaration, declared_policies: Mapping[str, PolicyDeclaration]
) -> PoolSnapshot:
    """Return the pool with its present use, and the limits and settings of a declaration. Groups and policies that the
    declaration leaves out stay: the ledger does not delete accounts that are in use."""
    present = snapshot.accounts
    values = declared.settings.explicit_values()
    discipline = declared.settings.discipline
    pool = replace(present["pool"], limit=declared.capacity, settings=_texts(values))
    groups = {f"group:{each.name}": _account(present, f"group:{each.name}", each.parent, each) for each in declared.groups}
    policies = {
        f"{POLICY}{name}": _account(present, f"{POLICY}{name}", each.group, each) for name, each in declared_policies.items()
    }
    times = {
        name: default_value(name, discipline) if (value := getattr(declared.settings, name)) is None else value
        for name in ("near_completion_s", "min_runtime_s")
    }
    settings = replace(
        snapshot.settings,
        discipline=discipline,
        max_preemptions_per_minute=declared.settings.max_preemptions_per_minute,
        **times,
    )
    return replace(snapshot, settings=settings, accounts={**present, "pool": pool, **groups, **policies})


def _account(
    present: Mapping[str, AccountSnapshot], name: str, group: str | None, declared: GroupDeclaration | PolicyDeclaration
) -> AccountSnapshot:
    empty = AccountSnapshot(name, None, {}, {}, {}, {}, {}, {})
    parent = "pool" if group is None else f"group:{group}"
    return replace(
        present.get(name, empty),
        parent=parent,
        reserved=declared.reserved,
        limit=declared.limit,
        profile=declared.profile if isinstance(declared, PolicyDeclaration) else empty.profile,
        settings=_texts(declared.settings.model_dump(exclude_unset=True)),
    )


def _texts(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the settings that accounts inherit, in the form of the ledger. Null settings are left out."""
    return {
        name: str(value)
        for name, value in settings.items()
        if name in ACCOUNT_SETTINGS and isinstance(value, str | int) and not isinstance(value, bool)
    }
