"""The accounts of a pool as a tree: paths, the limits that count, and where two policies meet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from app.domain.amounts import UNBOUNDED
from app.domain.snapshot import Account

POLICY = "policy:"


class Tree:
    """A pool with its groups and policies; a path leads from a policy up to the pool."""

    def __init__(self, accounts: Mapping[str, Account]) -> None:
        self.accounts = accounts
        self.paths: dict[str, tuple[str, ...]] = {}
        self.below: dict[str, list[str]] = defaultdict(list)
        """Account → the components whose policies are it or are below it."""
        for name in accounts:
            if name.startswith(POLICY):
                self._plant(name)
        self.pool = accounts[next(name for name, account in accounts.items() if account.parent is None)]
        self.grouped = any(len(path) > 2 for path in self.paths.values())
        self._limits: dict[tuple[str, str], int | None] = {}
        self._meetings: dict[tuple[str, str], int] = {}
        """By the accounts that two policies stand below."""

    def _plant(self, policy: str) -> None:
        component, path, above = policy.removeprefix(POLICY), [policy], self.accounts[policy].parent
        while above is not None:
            path.append(above)
            above = self.accounts[above].parent
        self.paths[component] = tuple(path)
        for account in path:
            self.below[account].append(component)

    def policy(self, component: str) -> Account:
        """The policy of a component."""
        return self.accounts[POLICY + component]

    def limit(self, account: str, key: str) -> int | None:
        """The limit that counts; None is no bound. One as large as the pool is none."""
        found = self._limits.get((account, key), -1)
        if found == -1:
            found = self._limits[account, key] = self._bound(self.accounts[account], key)
        return found

    def _bound(self, account: Account, key: str) -> int | None:
        capacity = self.pool.limit.get(key, None if key in UNBOUNDED else 0)
        if account is self.pool:
            return capacity
        limit = account.limit.get(key)
        return None if limit is None or (capacity is not None and limit >= capacity) else limit

    def meeting(self, component: str, other: str) -> int:
        """How far up the path of `component` its lowest account is that is on the path of `other` too (0: the same policy)."""
        if component == other:
            return 0
        path, theirs = self.paths[component], self.paths[other]
        parents = path[1], theirs[1]
        found = self._meetings.get(parents)
        if found is None:
            found = self._meetings[parents] = next(level for level, account in enumerate(path) if account in theirs)
        return found
