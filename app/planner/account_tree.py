"""The accounts of a pool as a tree: paths, effective limits, and the lowest common account of two policies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from app.domain.amounts import UNBOUNDED
from app.domain.snapshot import AccountSnapshot

POLICY = "policy:"


class AccountTree:
    """A pool with its groups and policies; a path leads from a policy up to the pool."""

    def __init__(self, accounts: Mapping[str, AccountSnapshot]) -> None:
        self.accounts = accounts
        self.paths: dict[str, tuple[str, ...]] = {}
        self.components_below: dict[str, list[str]] = defaultdict(list)
        """Account → the components whose policies are the account or lie below it."""
        for name in accounts:
            if name.startswith(POLICY):
                self._add_policy(name)
        self.pool = accounts[next(name for name, account in accounts.items() if account.parent is None)]
        self.has_groups = any(len(path) > 2 for path in self.paths.values())
        self._limits: dict[tuple[str, str], int | None] = {}
        self._meeting_levels: dict[tuple[str, str], int] = {}
        """(Parent of a policy, parent of another policy) → the level at which the two policies meet."""

    def _add_policy(self, policy: str) -> None:
        component, path, parent = policy.removeprefix(POLICY), [policy], self.accounts[policy].parent
        while parent is not None:
            path.append(parent)
            parent = self.accounts[parent].parent
        self.paths[component] = tuple(path)
        for account in path:
            self.components_below[account].append(component)

    def policy(self, component: str) -> AccountSnapshot:
        """Return the policy of a component."""
        return self.accounts[POLICY + component]

    def limit(self, account: str, key: str) -> int | None:
        """Return the effective limit of an account; None if there is no bound. A limit as large as the pool is no bound."""
        limit = self._limits.get((account, key), -1)
        if limit == -1:
            limit = self._limits[account, key] = self._effective_limit(self.accounts[account], key)
        return limit

    def _effective_limit(self, account: AccountSnapshot, key: str) -> int | None:
        capacity = self.pool.limit.get(key, None if key in UNBOUNDED else 0)
        if account is self.pool:
            return capacity
        limit = account.limit.get(key)
        return None if limit is None or (capacity is not None and limit >= capacity) else limit

    def meeting_level(self, component: str, other: str) -> int:
        """Return the level, on the path of `component`, of the lowest account that is on the path of `other` too. It is 0 if
        both are one policy."""
        if component == other:
            return 0
        path, other_path = self.paths[component], self.paths[other]
        parents = path[1], other_path[1]
        level = self._meeting_levels.get(parents)
        if level is None:
            level = self._meeting_levels[parents] = next(level for level, account in enumerate(path) if account in other_path)
        return level
