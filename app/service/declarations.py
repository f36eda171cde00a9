"""Declarative pools: what a workspace is as one file, what would have to change, and making it so.

A plan is made from pools as they were a moment ago and carried out by one script, which does nothing if they are that no
longer; then a new plan is made. So there is no lock, no order to get wrong, and no state in between that anybody could see.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from app.domain import quota_validation
from app.domain.declaration import Declaration, export_pool, field_of_account
from app.domain.declaration_diff import DeclarationPlan, plan_declaration
from app.domain.errors import Conflict, NotFound, RefusedDeclaration, RuleViolation
from app.domain.models import Pool
from app.service.over_limit import OverLimitReader
from app.service.validation import checked_name
from app.store.ledger import Ledger
from app.store.workspaces import WorkspaceRegistry

ATTEMPTS = 5
"""How often a plan is made anew because somebody else changed a pool."""

MAX_CHANGES = 2000
"""Pools, groups and policies that one declaration may change: one script changes them, and nobody is served meanwhile."""


class Declarations:
    """The pools of every workspace, as files."""

    def __init__(self, ledger: Ledger, registry: WorkspaceRegistry, over_limit: OverLimitReader) -> None:
        self._ledger, self._registry, self._over_limit = ledger, registry, over_limit

    def export(self, workspace: str) -> Declaration:
        """The workspace as it is; applied, it changes nothing. It may have more pools than a declaration that is applied."""
        pools = self._current_pools(workspace, self._ledger.list_pools(checked_name(workspace)))
        return Declaration.model_construct(pools=[export_pool(pool) for pool in pools.values()])

    def plan(self, workspace: str, declaration: Declaration, prune: bool = False) -> DeclarationPlan:
        """What `apply` would change."""
        quota_validation.validate_quotas(declaration)
        pools = self._current_pools(checked_name(workspace), self._affected_pools(workspace, declaration, prune))
        current = {name: export_pool(pool) for name, pool in pools.items()}
        plan = _bounded(plan_declaration(current, declaration, prune=prune))
        uses = [
            use
            for step in plan.steps
            if step.after is not None and step.name in pools
            for use in self._over_limit.compare(workspace, pools[step.name], step.after)
        ]
        return replace(plan, over_limit=tuple(uses))

    def apply(self, workspace: str, declaration: Declaration, prune: bool = False) -> DeclarationPlan:
        """Make it so, all of it or nothing, and say what was changed. With `prune`, pools that are not listed go."""
        for _ in range(ATTEMPTS):
            plan = self.plan(workspace, declaration, prune)
            if not plan.steps:
                return plan
            self._registry.add(workspace)
            try:
                if self._ledger.declare(workspace, plan.steps):
                    return plan
            except RefusedDeclaration as refusal:
                raise refusal.at(field_of_account(declaration, refusal.pool, refusal.account, refusal.key)) from None
        raise Conflict("changed_meanwhile", "others keep changing these pools; nothing was done")

    def _affected_pools(self, workspace: str, declaration: Declaration, prune: bool) -> Iterable[str]:
        names = [pool.name for pool in declaration.pools]
        return dict.fromkeys([*names, *self._ledger.list_pools(workspace)]) if prune else names

    def _current_pools(self, workspace: str, pools: Iterable[str]) -> dict[str, Pool]:
        """Those of the pools that are there, each as of one moment."""
        current = {}
        for pool in pools:
            try:
                current[pool] = self._ledger.get_pool(workspace, pool)
            except NotFound:
                continue
        return current


def _bounded(plan: DeclarationPlan) -> DeclarationPlan:
    touched = sum(step.change_count for step in plan.steps)
    if touched > MAX_CHANGES:
        raise RuleViolation(
            "too_many_changes", f"this changes {touched} pools, groups and policies; {MAX_CHANGES} are most at once"
        )
    return plan
