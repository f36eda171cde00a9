"""What those do who own the capacity: pools, groups, policies and the settings of a workspace."""

from __future__ import annotations

from app.domain.asks import GroupAsk, PolicyAsk, PoolAsk, PoolChange, WorkspaceSettings
from app.domain.errors import NotFound
from app.domain.models import Account, Policy, Pool, Request
from app.domain.names import component_id
from app.domain.ordering import BAND
from app.service.requests import checked_count, checked_name
from app.store.ledger import Ledger
from app.store.registry import Registry


class Pools:
    """The pools of every workspace."""

    def __init__(self, ledger: Ledger, registry: Registry) -> None:
        self._ledger, self._registry = ledger, registry

    def create(self, workspace: str, ask: PoolAsk) -> Pool:
        """Make a pool."""
        self._registry.remember(checked_name(workspace))
        self._ledger.create_pool(workspace, ask)
        return self._ledger.view_pool(workspace, ask.name)

    def names(self, workspace: str) -> list[str]:
        """The pools there are."""
        return self._ledger.pools(checked_name(workspace))

    def view(self, workspace: str, pool: str) -> Pool:
        """A pool with its groups and policies."""
        return self._ledger.view_pool(checked_name(workspace), checked_name(pool))

    def update(self, workspace: str, pool: str, change: PoolChange) -> Pool:
        """Merge a change; every waiter has been looked at again when this returns."""
        self._ledger.update_pool(checked_name(workspace), checked_name(pool), change)
        return self._ledger.view_pool(workspace, pool)

    def delete(self, workspace: str, pool: str) -> None:
        """Delete a pool that nobody waits for or holds anything of."""
        self._ledger.delete_pool(checked_name(workspace), checked_name(pool))

    def queue(self, workspace: str, pool: str, after: int | None = None, count: int = 100) -> tuple[list[Request], int | None]:
        """A page of the queue in order, at times short, and where the next begins (None: that was all)."""
        if after is not None and (type(after) is not int or abs(after) > BAND):
            raise ValueError("after is where an earlier page ended")
        ids, last = self._ledger.queue(checked_name(workspace), checked_name(pool), after, checked_count(count))
        return [self._ledger.look(workspace, request) for request in ids], last

    def set_policy(self, workspace: str, pool: str, component: str, ask: PolicyAsk, kind: str = "orchestrator") -> Policy:
        """Connect a component to a pool, or replace how it is."""
        named = component_id(checked_name(kind), checked_name(component))
        self._ledger.set_policy(checked_name(workspace), checked_name(pool), named, ask)
        return self.policy(workspace, pool, component, kind)

    def policy(self, workspace: str, pool: str, component: str, kind: str = "orchestrator") -> Policy:
        """A component's policy."""
        named = component_id(checked_name(kind), checked_name(component))
        if found := self.view(workspace, pool).policies.get(named):
            return found
        raise NotFound("policy", f"{named} in pool {pool}")

    def delete_policy(self, workspace: str, pool: str, component: str, kind: str = "orchestrator") -> None:
        """Part a component from a pool."""
        named = component_id(checked_name(kind), checked_name(component))
        self._ledger.delete_policy(checked_name(workspace), checked_name(pool), named)

    def set_group(self, workspace: str, pool: str, group: str, ask: GroupAsk) -> Account:
        """Make a group, or replace its numbers and parent."""
        self._ledger.set_group(checked_name(workspace), checked_name(pool), checked_name(group), ask)
        return self.view(workspace, pool).groups[group]

    def delete_group(self, workspace: str, pool: str, group: str) -> None:
        """Delete a group without children."""
        self._ledger.delete_group(checked_name(workspace), checked_name(pool), checked_name(group))

    def configure(self, workspace: str, change: WorkspaceSettings) -> None:
        """Change settings of the workspace."""
        self._registry.remember(checked_name(workspace))
        self._ledger.configure(workspace, change)
