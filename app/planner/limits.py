"""Who is over a limit, since when, and what has to leave for it.

That comes of a limit, or the pool, that was lowered below what is used. Where it is to be evicted, as much of the preemptible
work as is over is preempted, the newest first, for no waiter's sake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from app.domain.plan import Evict, Evicted
from app.domain.snapshot import Account, Allocation, Snapshot
from app.planner.tree import Tree

AFTER_S = 30
"""How long somebody may be over its limit, where nothing is said."""


class Limits:
    """The limits of a pool at one moment."""

    def __init__(self, snapshot: Snapshot, tree: Tree) -> None:
        self._snapshot = snapshot
        self._tree = tree

    def over(self, account: Account, gone: Callable[[str, str], int]) -> dict[str, int]:
        """Key → how much more an account uses than it may, when that much (by account and key) is gone."""
        units = (
            (key, used - gone(account.name, key), self._tree.limit(account.name, key)) for key, used in account.used.items()
        )
        return {key: used - limit for key, used, limit in units if limit is not None and used > limit}

    def over_since(self, account: Account) -> int | None:
        """Since when an account is over its limit that may not stay so; None if it is not, or may."""
        if not self._evicts(account) or not self.over(account, lambda *_: 0):
            return None
        since = account.published.over_ms
        return self._snapshot.now_ms if since is None else min(since, self._snapshot.now_ms)

    def is_due(self, account: Account) -> bool:
        """Whether it has been over its limit for as long as it may."""
        since = self.over_since(account)
        after_s = int(self._said(account, "over_limit_after_s") or AFTER_S)
        return since is not None and self._snapshot.now_ms - since >= after_s * 1000

    def _evicts(self, account: Account) -> bool:
        said = self._said(account, "over_limit")
        return said == "evict" if said else self._snapshot.terms.discipline == "fair_share"

    def _said(self, account: Account, setting: str) -> str:
        """What the nearest account that says anything does."""
        at: Account | None = account
        while at is not None:
            if setting in at.said:
                return at.said[setting]
            at = self._tree.accounts[at.parent] if at.parent else None
        return ""


def evictions(
    snapshot: Snapshot,
    tree: Tree,
    gone: Callable[[str, str], int],
    may_go: Callable[[Allocation], bool],
    most: int | None,
) -> Evict | None:
    """Who has to leave now; None if nobody. `gone` is what those bring who are leaving already."""
    limits, victims = Limits(snapshot, tree), dict[str, Evicted]()
    due = [account for account in snapshot.accounts.values() if limits.is_due(account)]
    if not due:
        return None
    running = {holder.id: holder for holder in reversed(snapshot.allocations) if may_go(holder)}

    def left(account: str, key: str) -> int:
        mine = (running[id_] for id_ in victims if account in tree.paths[running[id_].component])
        return gone(account, key) + sum(holder.amounts.get(key, 0) for holder in mine)

    for account in sorted(due, key=lambda account: (-_depth(account, tree), account.name)):
        below = (
            holder for holder in running.values() if account.name in tree.paths[holder.component] and holder.id not in victims
        )
        for holder in _as_many(below, limits.over(account, left)):
            victims[holder.id] = Evicted(holder.id, holder.fence, account.name)
    chosen = tuple(victims.values())[:most]
    return Evict(chosen) if chosen else None


def _depth(account: Account, tree: Tree) -> int:
    depth, at = 0, account
    while at.parent is not None:
        depth, at = depth + 1, tree.accounts[at.parent]
    return depth


def _as_many(newest: Iterable[Allocation], over: dict[str, int]) -> Iterator[Allocation]:
    """The newest, until it is over no more, but for those without whom it is over no more either."""
    left, taken = dict(over), list[Allocation]()
    for holder in newest:
        if all(units <= 0 for units in left.values()):
            break
        if any(units > 0 and holder.amounts.get(key, 0) for key, units in left.items()):
            taken.append(holder)
            left = {key: units - holder.amounts.get(key, 0) for key, units in left.items()}
    for holder in reversed(taken):
        without = {key: units + holder.amounts.get(key, 0) for key, units in left.items()}
        if all(units <= 0 for units in without.values()):
            left = without
        else:
            yield holder
