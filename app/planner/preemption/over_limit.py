"""Who is over a limit, since when, and what has to leave for it.

That comes of a limit, or the pool, that was lowered below what is used. Where it is to be evicted, as much of the preemptible
work as is over is preempted, the newest first, for no waiter's sake. If the limit is raised while they leave, those are called
back that need not go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from app.domain.plan_steps import Evict, Evicted
from app.domain.snapshot import Account, Allocation, Snapshot
from app.planner.account_tree import Tree
from app.planner.projection import Books

FOR_A_LIMIT = "!"
"""For whom those leave who leave for nobody, but for a limit."""

AT_ONCE = 200
"""How many have to leave in one step; the others follow in the next."""

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

    def needs_gone(self, books: Books, holder: Allocation, account: Account) -> bool:
        """Whether an account would be over a limit it may not be over, if one who leaves stayed and all others went."""
        if not self._evicts(account):
            return False
        bounds = ((key, units, self._tree.limit(account.name, key)) for key, units in holder.amounts.items())
        return any(
            limit is not None and books.used_then(account.name, key, books.end) + units > limit for key, units, limit in bounds
        )

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


def spared(snapshot: Snapshot, books: Books) -> Iterator[Allocation]:
    """Those leaving for a limit that would not be exceeded if they stayed, the oldest first; the caller counts each as staying
    before it asks for the next."""
    limits = Limits(snapshot, books.tree)
    for holder in snapshot.allocations:
        if holder.leaving_for == FOR_A_LIMIT and not any(
            limits.needs_gone(books, holder, account) for account in _path(books, holder)
        ):
            yield holder


def evictions(snapshot: Snapshot, books: Books, protects: Callable[[Allocation], object], most: int | None) -> Evict | None:
    """Who has to leave now, the newest first, so many at a time; None if nobody."""
    tree, limits = books.tree, Limits(snapshot, books.tree)
    due = [account for account in snapshot.accounts.values() if limits.is_due(account)]
    if not due:
        return None
    victims: dict[str, tuple[Allocation, Account]] = {}
    more: dict[tuple[str, str], int] = defaultdict(int)

    def count(holder: Allocation, sign: int) -> None:
        for account in tree.paths[holder.component]:
            for key, units in holder.amounts.items():
                more[account, key] += sign * units

    def gone(account: str, key: str) -> int:
        return books.gone(account, key) + more.get((account, key), 0)

    running = [holder for component in tree.paths for holder in books.shares.running(component) if protects(holder) is None]
    running.sort(key=lambda holder: -books.shares.age[holder.id])
    for account in sorted(due, key=lambda account: (-_depth(account, tree), account.name)):
        below = (holder for holder in running if account.name in tree.paths[holder.component] and holder.id not in victims)
        for holder in _until_enough(below, limits.over(account, gone)):
            victims[holder.id] = holder, account
            count(holder, 1)
    for holder, _ in sorted(victims.values(), key=lambda each: each[0].fence):  # given back: who is not needed after all
        count(holder, -1)
        above = (account for account in due if account.name in tree.paths[holder.component])
        if any(limits.over(account, gone).keys() & holder.amounts.keys() for account in above):
            count(holder, 1)
        else:
            del victims[holder.id]
    newest = sorted(victims.values(), key=lambda each: each[0].fence, reverse=True)[
        : AT_ONCE if most is None else min(most, AT_ONCE)
    ]
    return Evict(tuple(Evicted(holder.id, holder.fence, account.name) for holder, account in newest)) if newest else None


def _path(books: Books, holder: Allocation) -> list[Account]:
    return [books.tree.accounts[account] for account in books.tree.paths[holder.component]]


def _depth(account: Account, tree: Tree) -> int:
    depth, at = 0, account
    while at.parent is not None:
        depth, at = depth + 1, tree.accounts[at.parent]
    return depth


def _until_enough(newest: Iterable[Allocation], over: dict[str, int]) -> Iterator[Allocation]:
    """In order, those that hold something of what is over, until nothing is."""
    left = dict(over)
    for holder in newest:
        if not left:
            return
        if any(holder.amounts.get(key, 0) for key in left):
            yield holder
            less = {key: units - holder.amounts.get(key, 0) for key, units in left.items()}
            left = {key: units for key, units in less.items() if units > 0}
