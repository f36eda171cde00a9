"""The rules of preemption by fair share, and of accounts over their limit, written independently of the planner.

The fair shares themselves are not computed here (`tests/properties/fair_share` does that): decisions are compared with the
published shares, on which they rest. So the model checks only the part of the rules that is visible in the data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.properties.lawful import Law
from tests.properties.oracle import FOR_NONE, NO_OWNER, Model, Request
from tests.properties.snapshot import Snapshot

PAUSE_S = 5
"""The default pause between two evictions of a pool, in seconds."""
AFTER_S = 30
"""The default time, in seconds, for which an account may be over its limit."""


@dataclass
class FairLaw:
    """The rules of fair share in one pool at one moment."""

    model: Model
    snapshot: Snapshot
    pool: str

    def __post_init__(self) -> None:
        self.place = self.model.pools[self.pool]
        self.law = Law(self.model, self.snapshot, self.pool)

    def _status(self, account: str) -> str:
        return str(self.place.accounts[account].settings.get("status", ""))

    def faults(self, waiter: Request, reasons: Mapping[str, str]) -> Iterator[str]:
        """Yield the faults of a decision that preempted these for the waiter, each for its reason."""
        states = {self._status(account) for account in self.place.path(waiter.component)[:-1]}
        if not states - {""}:
            yield f"{waiter.id} preempts, and no account on its path starves"
        if self.law.stands_behind(waiter, doubt=False):
            yield f"{waiter.id} asks behind one that lacks capacity"
        if self.model.blocked(self.pool, waiter) == "" and not self.model.cleared_away(self.pool, waiter):
            yield f"{waiter.id} lacks nothing"
        most = int(self.place.settings.get("max_victims") or 0)
        if most and len(reasons) > most:
            yield f"{sorted(reasons)} are more than {most}"
        yield from self._too_soon(waiter)
        for id_, reason in reasons.items():
            victim = self.model.requests[id_]
            if reason not in ("starvation", "aggressive_starvation"):
                yield f"{id_} is told to leave for {reason}"
            if reason == "aggressive_starvation" and "aggressively_starving" not in states:
                yield f"{id_} is told to leave for {reason}, and {waiter.component} is {states}"
            yield from self._spared(waiter, victim)

    def _too_soon(self, waiter: Request) -> Iterator[str]:
        pause_s, decided = self.place.settings.get("backoff_s", PAUSE_S), self.place.settings.get("decided_ms")
        since_ms = self.model.now_ms - int(decided) if decided else -1
        if 0 <= since_ms < int(pause_s) * 1000:
            yield f"{waiter.id} asks {since_ms} ms after the last decision"

    def _spared(self, waiter: Request, victim: Request) -> Iterator[str]:
        if why := self.law.protected(waiter, victim):
            yield f"{waiter.id} may not take from {victim.id}, which {why}"
        if victim.component == waiter.component:
            yield f"{waiter.id} takes from {victim.id}, its own"
        elif self._status(f"policy:{victim.component}"):
            yield f"{waiter.id} takes from {victim.id}, whose policy starves itself"
        if not self.law.short(waiter, victim) & victim.amounts.keys():
            yield f"{waiter.id} takes from {victim.id}, which has nothing of what it lacks"


@dataclass
class Excess:
    """The accounts of one pool that are over their limit at one moment, and may not stay so."""

    model: Model
    snapshot: Snapshot
    pool: str

    def __post_init__(self) -> None:
        self.place = self.model.pools[self.pool]
        self.used = self.model.used(self.pool)

    def _said(self, account: str, setting: str) -> str | None:
        """Return the setting of the nearest account that has one."""
        ancestor: str | None = account
        while ancestor and ancestor in self.place.accounts:
            node = self.place.accounts[ancestor]
            if setting in node.settings:
                return node.settings[setting]
            ancestor = node.parent
        return self.place.settings.get(setting)

    def _noted(self, account: str) -> str | None:
        fields = self.place.settings if account == "pool" else self.place.accounts[account].settings
        return fields.get("over_ms")

    def evicts(self, account: str) -> bool:
        """True if units of an account over its limit may not stay."""
        usual = "evict" if self.model.is_fair(self.pool) else "keep"
        return (self._said(account, "over_limit") or usual) == "evict"

    def over(self, account: str, freed_units: Counter[tuple[str, str]] | None = None) -> Counter[str]:
        """Return the units of each key by which an account is over its limit after these units have left."""
        going = freed_units or Counter[tuple[str, str]]()
        left = {key: units - going[account, key] for key, units in self.used[account].items()}
        return +Counter({key: units - self.place.limit(account, key) for key, units in left.items()})

    def is_due(self, account: str) -> bool:
        """True if the account has been over its limit for as long as it may."""
        since, after_s = self._noted(account), int(self._said(account, "over_limit_after_s") or AFTER_S)
        noted = since is not None and self.model.now_ms - int(since) >= after_s * 1000
        return noted and self.evicts(account) and bool(self.over(account))

    def _going(self, more_victims: Mapping[str, object]) -> Counter[tuple[str, str]]:
        """Return the units that leave with the present preemptions and with these victims."""
        freed_units, owners_by_victim = Counter[tuple[str, str]](), self.model.leaving[self.pool]
        for id_ in {id_ for id_, owner in owners_by_victim.items() if owner != NO_OWNER} | more_victims.keys():
            freed_units.update(dict(self._brings(self.model.requests[id_])))
        return freed_units

    def faults(self, victims: Mapping[str, object]) -> Iterator[str]:
        """Yield the faults of a decision that evicts these."""
        for id_ in victims:
            victim = self.model.requests[id_]
            if not victim.preemptible or victim.rank == 10 or victim.status != "allocated":
                yield f"{id_} is evicted, and protected: {victim}"
            freed_units = self._going({other: 0 for other in victims if other != id_})
            path = [account for account in self.place.path(victim.component) if self.is_due(account)]
            if not any(self.over(account, freed_units).keys() & victim.amounts.keys() for account in path):
                yield f"{id_} is evicted, and need not: due are {path}"

    def overlooked(self) -> Iterator[str]:
        """Yield the allocations that should have been evicted and were not."""
        if "max_preemptions_per_minute" in self.place.settings:
            return
        law, freed_units = Law(self.model, self.snapshot, self.pool), self._going({})
        for account in ("pool", *self.place.accounts):
            over = self.over(account, freed_units) if self.is_due(account) else Counter[str]()
            for allocation in self.model.holders(self.pool):
                inside = account in self.place.path(allocation.component)
                if inside and over.keys() & allocation.amounts.keys() and not law.protected(allocation, allocation):
                    yield f"{allocation.id} runs on in {self.pool}, and {account} is over its limit by {dict(over)}"

    def lingering(self) -> Iterator[str]:
        """Yield the evictions that are no longer needed; units of holds do not count twice."""
        owners_by_victim = self.model.leaving[self.pool]
        for id_ in owners_by_victim if not self.model.clearings[self.pool] else ():
            victim = self.model.requests[id_]
            freed_units = self._going({}) - Counter(dict(self._brings(victim)))
            path = [account for account in self.place.path(victim.component) if self.evicts(account)]
            if owners_by_victim[id_] == FOR_NONE and not any(
                self.over(account, freed_units).keys() & victim.amounts.keys() for account in path
            ):
                yield f"{id_} leaves {self.pool} for a limit, and need not"

    def _brings(self, victim: Request) -> Iterator[tuple[tuple[str, str], int]]:
        for account in self.place.path(victim.component):
            yield from (((account, key), units) for key, units in victim.amounts.items())

    def misnoted(self) -> Iterator[str]:
        """Yield the accounts whose time over their limit is recorded wrongly, after a completed pass."""
        for account in ("pool", *self.place.accounts):
            should = self.evicts(account) and bool(self.over(account))
            if should != (self._noted(account) is not None):
                yield f"{self.pool} {account} is noted over its limit since {self._noted(account)}, and is it: {should}"
