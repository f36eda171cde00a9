"""The accounts as they are and as they will be when all who are leaving have left, moved along by each step that is planned.

Nobody has left before the ledger says so: `used` stays as it was seen, and what is leaving is counted apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from app.domain.amounts import Amounts
from app.domain.snapshot import Allocation, Hold, Snapshot, Waiter
from app.planner.account_tree import Tree
from app.planner.borrowing import Shares

Tally: TypeAlias = dict[tuple[str, str], int]
"""(Account, key) → units."""

Deficits: TypeAlias = Mapping[tuple[str, str], int]
"""(Account, key) → units that are short there."""


@dataclass(slots=True)
class Way:
    """A waiter's way being cleared: a hold with victims, as it stands in the simulation."""

    owner: Waiter
    brought: Mapping[str, Amounts]
    leaving: dict[str, Allocation] = field(default_factory=dict)
    coming: Tally = field(default_factory=lambda: defaultdict(int))
    """What those who are leaving for it still bring."""


@dataclass(slots=True)
class Line:
    """What the holds of others count for somebody, by where it stands among them."""

    claimed: Tally = field(default_factory=lambda: defaultdict(int))
    """What they will use of an account when all have left."""
    kept: Tally = field(default_factory=lambda: defaultdict(int))
    """What they keep of it now."""
    fixed: Tally = field(default_factory=lambda: defaultdict(int))
    """What of `claimed` is not preemptible, of those before it."""


class Books:
    """One pool in the simulation."""

    def __init__(self, snapshot: Snapshot, tree: Tree, shares: Shares) -> None:
        self.tree = tree
        self.shares = shares
        self.ways: dict[str, Way] = {}
        self.strays: dict[str, Allocation] = {}
        """Who is leaving for nobody any more."""
        self.end = Line()
        """The line as it is for those who have no hold."""
        self.version = 0
        """Grows with every step."""
        self._gone: Tally = defaultdict(int)
        self._moved: Tally = defaultdict(int)
        for hold in snapshot.holds:
            self._open(hold)
        for holder in snapshot.allocations:
            self._see_leaving(holder)
        for way in self.ways.values():
            self._behind(self.end, way, 1)

    def _open(self, hold: Hold) -> None:
        if hold.owner.component in self.tree.paths:
            self.ways[hold.owner.id] = Way(hold.owner, hold.brought)

    def _see_leaving(self, holder: Allocation) -> None:
        if holder.leaving_for is None:
            return
        if holder.leaving_for in self.ways:
            self._send(holder, self.ways[holder.leaving_for])
        elif holder.leaving_for:
            self._count(self._gone, holder, 1)
        else:
            self.strays[holder.id] = holder

    # What will be short, and what of a share is unused

    def deficits(self, waiter: Waiter, line: Line) -> dict[tuple[str, str], int]:
        """What is short for a waiter when all who are leaving, strays not among them, have left."""
        short = {}
        for account in self.tree.paths[waiter.component]:
            for key, units in waiter.amounts.items():
                limit = self.tree.limit(account, key)
                if limit is not None:
                    lacking = self.used_then(account, key, line) + units - limit
                    if lacking > 0:
                        short[account, key] = lacking
        return short

    def is_fixed_share_used_up(self, waiter: Waiter, line: Line) -> bool:
        """Whether a waiter that is not preemptible has to wait for others of its policy that are not either."""
        if waiter.preemptible:
            return False
        policy, listed = self.tree.policy(waiter.component), self.tree.pool.limit
        return any(
            policy.used_fixed.get(key, 0) + line.fixed.get((policy.name, key), 0) + units > policy.reserved.get(key, 0)
            for key, units in waiter.amounts.items()
            if key in listed
        )

    def has_unused(self, waiter: Waiter, account: str, line: Line) -> bool:
        """Whether a waiter fits into the unused share of an account, on every share key it asks, of which there must be one."""
        asked, at = self.shares.asked(waiter.amounts), self.tree.accounts[account]
        taken, promised = (at.used, line.kept) if waiter.preemptible else (at.used_fixed, line.fixed)
        return bool(asked) and all(
            taken.get(key, 0) + promised.get((account, key), 0) + units <= at.reserved.get(key, 0) for key, units in asked
        )

    def beyond_reserved(self, waiter: Waiter, line: Line) -> list[tuple[str, int]] | None:
        """What more of its own policy has to leave for a waiter to lie within its reserved, per share key it asks; None if
        nothing could make it."""
        policy, asked = self.tree.policy(waiter.component), self.shares.asked(waiter.amounts)
        if not asked or any(units > policy.reserved.get(key, 0) for key, units in asked):
            return None
        return [(key, self.used_then(policy.name, key, line) + units - policy.reserved.get(key, 0)) for key, units in asked]

    def lacks_capacity(self, waiter: Waiter, line: Line) -> bool:
        """Whether it does not fit into the pool at present."""
        return self._lacks(waiter, self.tree.pool.name, line)

    def is_kept_by_limit(self, waiter: Waiter) -> bool:
        """Whether a limit below the pool keeps it at present, or its policy's fixed share: it blocks nobody then."""
        alone = Line()
        return self.is_fixed_share_used_up(waiter, alone) or any(
            self._lacks(waiter, account, alone) for account in self.tree.paths[waiter.component][:-1]
        )

    def _lacks(self, waiter: Waiter, account: str, line: Line) -> bool:
        used, limit = self.tree.accounts[account].used, self.tree.limit
        return any(
            (bound := limit(account, key)) is not None and used.get(key, 0) + line.kept.get((account, key), 0) + units > bound
            for key, units in waiter.amounts.items()
        )

    def used_then(self, account: str, key: str, line: Line) -> int:
        """What an account will use when all who are leaving have left and those of the line have what their holds are for."""
        at = (account, key)
        return self.tree.accounts[account].used.get(key, 0) - self._gone.get(at, 0) + line.claimed.get(at, 0)

    def back(self, account: str, key: str) -> int:
        """How many units will have left the stack of an account when the steps so far are taken."""
        return self.tree.accounts[account].back.get(key, 0) + self._moved.get((account, key), 0)

    # The line of those who have holds

    def in_line(self) -> Iterator[tuple[Way, Line]]:
        """Those who have holds, in order, each with the line as it is for it: all of those before it, and of those behind it
        what their victims bring. Between two of them the first may get more victims or lose its hold, and nobody else."""
        line = Line()
        for way in self.ways.values():
            self._before(line, way, 1)
        for way in list(self.ways.values()):
            self._before(line, way, -1)
            yield way, line
            if way.owner.id in self.ways:
                self._behind(line, way, 1)

    def _before(self, line: Line, way: Way, sign: int) -> None:
        """Count a hold for those before it: they are kept only from what its victims bring, at most its amount."""
        for at, units in self._amounts(way):
            brought = way.brought.get(at[0], {}).get(at[1], 0)
            line.claimed[at] += sign * min(units, brought + way.coming[at])
            line.kept[at] += sign * min(units, brought)

    def _behind(self, line: Line, way: Way, sign: int) -> None:
        """Count a hold for those behind it, or without one."""
        for at, units in self._amounts(way):
            line.claimed[at] += sign * units
            line.kept[at] += sign * max(0, units - way.coming[at])
            if not way.owner.preemptible:
                line.fixed[at] += sign * units

    def _amounts(self, way: Way) -> Iterator[tuple[tuple[str, str], int]]:
        for account in self.tree.paths[way.owner.component]:
            for key, units in way.owner.amounts.items():
                yield (account, key), units

    # The steps

    def stop(self, waiter: Waiter, victims: Iterable[Allocation]) -> None:
        """Victims are told to leave for a waiter: it gets a hold behind all others, or keeps the one it has."""
        way = self.ways.get(waiter.id)
        if way is None:
            way = self.ways[waiter.id] = Way(waiter, {})
        else:
            self._behind(self.end, way, -1)
        for victim in victims:
            self._tell(victim)
            self._send(victim, way)
        self._behind(self.end, way, 1)
        self.version += 1

    def evict(self, victims: Iterable[Allocation]) -> None:
        """These are told to leave for nobody."""
        for victim in victims:
            self._tell(victim)
            self._count(self._gone, victim, 1)
        self.version += 1

    def _tell(self, victim: Allocation) -> None:
        self.shares.leave(victim)
        for account in self.tree.paths[victim.component][:-1]:
            for key, units in victim.amounts.items():
                self._moved[account, key] += units

    def gone(self, account: str, key: str) -> int:
        """How many units those will bring who are leaving, strays not among them."""
        return self._gone.get((account, key), 0)

    def pass_on(self, stray: Allocation, way: Way) -> None:
        """A stray goes on leaving for the owner of another hold."""
        del self.strays[stray.id]
        self._behind(self.end, way, -1)
        self._send(stray, way)
        self._behind(self.end, way, 1)
        self.version += 1

    def reprieve(self, stray: Allocation) -> None:
        """A stray is called back."""
        del self.strays[stray.id]
        self._come_back(stray)

    def stay(self, holder: Allocation) -> None:
        """One who was leaving for a limit is called back."""
        self._count(self._gone, holder, -1)
        self._come_back(holder)

    def _come_back(self, holder: Allocation) -> None:
        policy, *groups = self.tree.paths[holder.component][:-1]
        for group in groups:  # as the ledger counts it: as much may be borrowed now that was in share
            for key, units in self.tree.accounts[policy].reserved.items():
                self._moved[group, key] += units
        self.shares.come_back(holder)
        self.version += 1

    def end_hold(self, way: Way) -> None:
        """A hold ends; those who are leaving for it are strays from now on."""
        self._behind(self.end, way, -1)
        del self.ways[way.owner.id]
        for holder in way.leaving.values():
            self.strays[holder.id] = holder
            self._count(self._gone, holder, -1)
        self.version += 1

    def _send(self, holder: Allocation, way: Way) -> None:
        way.leaving[holder.id] = holder
        self._count(way.coming, holder, 1)
        self._count(self._gone, holder, 1)

    def _count(self, tally: Tally, holder: Allocation, sign: int) -> None:
        for account in self.tree.paths[holder.component]:
            for key, units in holder.amounts.items():
                tally[account, key] += sign * units
