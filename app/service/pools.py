"""What those do who own the capacity: pools, groups, policies and the settings of a workspace."""

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
        """Make a pool; a caller that gives a key may repeat it with the same ask."""
        self._registry.add(checked_name(workspace))
        operation = key and hashlib.sha256(f"{body_digest(spec)} {key}".encode()).hexdigest()
        self._ledger.create_pool(workspace, spec, operation)
        return self._ledger.get_pool(workspace, spec.name)

    def list_names(self, workspace: str) -> list[str]:
        """The pools there are."""
        return self._ledger.list_pools(checked_name(workspace))

    def get(self, workspace: str, pool: str) -> Pool:
        """A pool with its groups and policies."""
        return self._ledger.get_pool(checked_name(workspace), checked_name(pool))

    def list_existing(self, workspace: str, pools: Iterable[str]) -> Iterator[Pool]:
        """Several pools; one that has gone meanwhile is left out."""
        for pool in pools:
            with suppress(NotFound):
                yield self.get(workspace, pool)

    def update(self, workspace: str, pool: str, change: PoolUpdate) -> Pool:
        """Merge a change; every waiter has been looked at again when this returns."""
        self._ledger.update_pool(checked_name(workspace), checked_name(pool), change)
        return self._ledger.get_pool(workspace, pool)

    def delete(self, workspace: str, pool: str) -> None:
        """Delete a pool that nobody waits for or holds anything of."""
        self._ledger.delete_pool(checked_name(workspace), checked_name(pool))

    def set_policy(self, workspace: str, pool: str, component: str, spec: PolicySpec, kind: str = "orchestrator") -> bool:
        """Connect a component to a pool, or replace how it is; says whether it is new."""
        component_name = checked_component(kind, component)
        return self._ledger.set_policy(checked_name(workspace), checked_name(pool), component_name, spec)

    def get_policy(self, workspace: str, pool: str, component: str, kind: str = "orchestrator") -> tuple[Pool, Policy]:
        """A component's policy, with the pool it is in."""
        component_name = checked_component(kind, component)
        view = self.get(workspace, pool)
        if policy := view.policies.get(component_name):
            return view, policy
        raise NotFound("policy", f"{component_name} in pool {pool}")

    def delete_policy(self, workspace: str, pool: str, component: str, kind: str = "orchestrator") -> None:
        """Part a component from a pool."""
        component_name = checked_component(kind, component)
        self._ledger.delete_policy(checked_name(workspace), checked_name(pool), component_name)

    def set_group(self, workspace: str, pool: str, group: str, spec: GroupSpec) -> bool:
        """Make a group, or replace its numbers and parent; says whether it is new."""
        return self._ledger.set_group(checked_name(workspace), checked_name(pool), checked_name(group), spec)

    def get_group(self, workspace: str, pool: str, group: str) -> tuple[Pool, Group]:
        """A group, with the pool it is in."""
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
