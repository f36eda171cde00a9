"""Pools, groups, policies and the settings of a workspace: the use cases of the owners of capacity."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress

from app.domain.errors import NotFound
from app.domain.models import Group, Policy, Pool
from app.domain.specs import GroupSpec, PolicySpec, PoolSpec, PoolUpdate, WorkspaceSettings, body_digest
from app.service.validation import checked_component, checked_name
from app.store.ledger import Ledger
from app.store.workspaces import WorkspaceRegistry


class Pools:
    """The pools of every workspace."""

    def __init__(self, ledger: Ledger, registry: WorkspaceRegistry) -> None:
        self._ledger, self._registry = ledger, registry

    def create(self, workspace: str, spec: PoolSpec, key: str | None = None) -> Pool:
        """Create a pool. A call with a key may be repeated with the same spec."""
        self._registry.add(checked_name(workspace))
        operation = key and hashlib.sha256(f"{body_digest(spec)} {key}".encode()).hexdigest()
        self._ledger.create_pool(workspace, spec, operation)
        return self._ledger.get_pool(workspace, spec.name)

    def list_names(self, workspace: str) -> list[str]:
        """Return the names of all pools."""
        return self._ledger.list_pools(checked_name(workspace))

    def get(self, workspace: str, pool: str) -> Pool:
        """Return a pool with its groups and policies."""
        return self._ledger.get_pool(checked_name(workspace), checked_name(pool))

    def list_existing(self, workspace: str, pools: Iterable[str]) -> Iterator[Pool]:
        """Yield the pools. A pool that was deleted meanwhile is left out."""
        for pool in pools:
            with suppress(NotFound):
                yield self.get(workspace, pool)

    def update(self, workspace: str, pool: str, change: PoolUpdate) -> Pool:
        """Change a pool. Return after every waiter has been judged again."""
        self._ledger.update_pool(checked_name(workspace), checked_name(pool), change)
        return self._ledger.get_pool(workspace, pool)

    def delete(self, workspace: str, pool: str) -> None:
        """Delete a pool without waiters and allocations."""
        self._ledger.delete_pool(checked_name(workspace), checked_name(pool))

    def set_policy(self, workspace: str, pool: str, component: str, spec: PolicySpec, kind: str = "orchestrator") -> bool:
        """Create or replace the policy of a component. Return True if it is new."""
        component_name = checked_component(kind, component)
        return self._ledger.set_policy(checked_name(workspace), checked_name(pool), component_name, spec)

    def get_policy(self, workspace: str, pool: str, component: str, kind: str = "orchestrator") -> tuple[Pool, Policy]:
        """Return the policy of a component, with its pool."""
        component_name = checked_component(kind, component)
        view = self.get(workspace, pool)
        if policy := view.policies.get(component_name):
            return view, policy
        raise NotFound("policy", f"{component_name} in pool {pool}")

    def delete_policy(self, workspace: str, pool: str, component: str, kind: str = "orchestrator") -> None:
        """Delete the policy of a component in a pool."""
        component_name = checked_component(kind, component)
        self._ledger.delete_policy(checked_name(workspace), checked_name(pool), component_name)

    def set_group(self, workspace: str, pool: str, group: str, spec: GroupSpec) -> bool:
        """Create or replace a group. Return True if it is new."""
        return self._ledger.set_group(checked_name(workspace), checked_name(pool), checked_name(group), spec)

    def get_group(self, workspace: str, pool: str, group: str) -> tuple[Pool, Group]:
        """Return a group, with its pool."""
        view = self.get(workspace, pool)
        if policy := view.groups.get(checked_name(group)):
            return view, policy
        raise NotFound("group", f"{group} in pool {pool}")

    def delete_group(self, workspace: str, pool: str, group: str) -> None:
        """Delete a group without children."""
        self._ledger.delete_group(checked_name(workspace), checked_name(pool), checked_name(group))

    def update_workspace(self, workspace: str, change: WorkspaceSettings) -> None:
        """Change settings of the workspace."""
        self._registry.add(checked_name(workspace))
        self._ledger.update_workspace(workspace, change)
