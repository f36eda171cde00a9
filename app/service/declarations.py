"""Declarations of pools: export, plan and apply.

A plan is made from a snapshot of the pools. One script applies it, and does nothing if the pools have changed since the
snapshot; then a new plan is made. So there is no lock, and no client sees a state in between.
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
"""The most plans that are made for one declaration, if other clients change its pools meanwhile."""

MAX_CHANGES = 2000
"""The most pools, groups and policies that one declaration may change: while its script runs, Redis serves no other call."""


class Declarations:
    """The declarations of every workspace."""

    def __init__(self, ledger: Ledger, registry: WorkspaceRegistry, over_limit: OverLimitReader) -> None:
        self._ledger, self._registry, self._over_limit = ledger, registry, over_limit

    def export(self, workspace: str) -> Declaration:
        """Return the present pools as a declaration. It may have more pools than a declaration that is applied may have."""
        pools = self._current_pools(workspace, self._ledger.list_pools(checked_name(workspace)))
        return Declaration.model_construct(pools=[export_pool(pool) for pool in pools.values()])

    def plan(self, workspace: str, declaration: Declaration, prune: bool = False) -> DeclarationPlan:
        """Return the changes that `apply` would make."""
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
        """Apply all changes or none, and return them. With `prune`, pools that are not listed are deleted."""
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
        raise Conflict("changed_meanwhile", "other clients keep changing these pools; nothing was done")

    def _affected_pools(self, workspace: str, declaration: Declaration, prune: bool) -> Iterable[str]:
        names = [pool.name for pool in declaration.pools]
        return dict.fromkeys([*names, *self._ledger.list_pools(workspace)]) if prune else names

    def _current_pools(self, workspace: str, pools: Iterable[str]) -> dict[str, Pool]:
        """Return the pools that exist, each as of one moment."""
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
            "too_many_changes", f"this changes {touched} pools, groups and policies; one call may change {MAX_CHANGES}"
        )
    return plan
