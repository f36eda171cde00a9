"""Calls about pools, groups and policies, with types: for administrators of capacity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from poolkeeper.http_client import HttpClient
from poolkeeper.models import Group, Policy, Pool, ShareAccount
from poolkeeper.request_body import account_body


class PoolApi(HttpClient):
    """A client with the calls about pools, groups and policies."""

    def pools(self) -> list[Pool]:
        """Return all pools."""
        return [Pool.from_json(row) for row in self.items("/pools")]

    def pool(self, name: str) -> Pool:
        """Return one pool."""
        return Pool.from_json(self.call("GET", f"/pools/{path_segment(name)}"))

    def create_pool(
        self, name: str, capacity: Mapping[str, int], *, description: str = "", settings: Mapping[str, Any] | None = None
    ) -> Pool:
        """Create a pool. Raise Conflict (`pool_exists`) if there is one of this name."""
        body = {"name": name, "capacity": dict(capacity), "description": description, "settings": dict(settings or {})}
        return Pool.from_json(self.call("POST", "/pools", body=body))

    def update_pool(
        self,
        name: str,
        *,
        capacity: Mapping[str, int] | None = None,
        description: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Pool:
        """Change the given fields of a pool. Keys of `capacity` that are not given stay; 0 removes a key."""
        fields = {"capacity": capacity, "description": description, "settings": settings}
        body = {field: value for field, value in fields.items() if value is not None}
        return Pool.from_json(self.call("PATCH", f"/pools/{path_segment(name)}", body=body))

    def delete_pool(self, name: str) -> None:
        """Delete a pool without queued requests and allocations."""
        self.call("DELETE", f"/pools/{path_segment(name)}")

    def shares(self, pool: str) -> list[ShareAccount]:
        """Return usage, demand and fair share of every account of a pool: the pool, and below each account its children."""
        return [ShareAccount.from_json(row) for row in self.call("GET", f"/pools/{path_segment(pool)}/shares")["accounts"]]

    def history(self, pool: str) -> dict[str, Any]:
        """Return the use of a pool over the last hours: `times`, `capacity` (key → numbers) and `series`: the total as `pool`,
        each policy as `type/name`, each with key → numbers."""
        history: dict[str, Any] = self.call("GET", f"/pools/{path_segment(pool)}/history")
        return history

    def policies(self, pool: str) -> list[Policy]:
        """Return the policies of a pool."""
        return [Policy.from_json(row) for row in self.items(f"/pools/{path_segment(pool)}/policies")]

    def component_policies(self, component: str, component_type: str = "orchestrator") -> list[Policy]:
        """Return the policies of a component in all pools."""
        query = {"component_type": component_type}
        return [Policy.from_json(row) for row in self.items(f"/components/{path_segment(component)}/policies", query=query)]

    def set_policy(
        self,
        pool: str,
        component: str,
        *,
        component_type: str = "orchestrator",
        priority: int | None = None,
        reserved: Mapping[str, int] | None = None,
        limit: Mapping[str, int] | None = None,
        weight: int | None = None,
        group: str | None = None,
        profile: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Policy:
        """Create or replace a policy. Fields that are not given get their defaults, settings are inherited."""
        fields = {"priority": priority, "group": group, "profile": profile, "settings": settings}
        body = account_body(reserved=reserved, limit=limit, weight=weight, **fields)
        query = {"component_type": component_type}
        return Policy.from_json(self.call("PUT", _policy_path(pool, component), query=query, body=body))

    def policy(self, pool: str, component: str, component_type: str = "orchestrator") -> Policy:
        """Return one policy."""
        query = {"component_type": component_type}
        return Policy.from_json(self.call("GET", _policy_path(pool, component), query=query))

    def delete_policy(self, pool: str, component: str, component_type: str = "orchestrator") -> None:
        """Detach a component from a pool in which it has neither queued requests nor allocations."""
        self.call("DELETE", _policy_path(pool, component), query={"component_type": component_type})

    def groups(self, pool: str) -> list[Group]:
        """Return the groups of a pool."""
        return [Group.from_json(row) for row in self.items(f"/pools/{path_segment(pool)}/groups")]

    def set_group(
        self,
        pool: str,
        group: str,
        *,
        parent: str | None = None,
        reserved: Mapping[str, int] | None = None,
        limit: Mapping[str, int] | None = None,
        weight: int | None = None,
        mode: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Group:
        """Create or replace a group. Fields that are not given get their defaults, settings are inherited."""
        body = account_body(parent=parent, reserved=reserved, limit=limit, weight=weight, mode=mode, settings=settings)
        return Group.from_json(self.call("PUT", f"/pools/{path_segment(pool)}/groups/{path_segment(group)}", body=body))

    def delete_group(self, pool: str, group: str) -> None:
        """Delete a group that has no policies or groups below it."""
        self.call("DELETE", f"/pools/{path_segment(pool)}/groups/{path_segment(group)}")


def path_segment(name: str) -> str:
    """Return a name as one segment of a path, whatever its characters are."""
    return quote(name, safe="") or "%20"


def _policy_path(pool: str, component: str) -> str:
    return f"/pools/{path_segment(pool)}/policies/{path_segment(component)}"
