"""Who may have others leave by fair shares, and who has to go as an account is over its limit: written from the words.

What is a fair share is not worked out again here (`tests/properties/fair_share` does that): decisions are held against what was
published, which they rest on. So what is told is not the whole law, but what everybody can see of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.properties.lawful import Law
from tests.properties.oracle import FOR_NONE, NO_OWNER, Model, Request
from tests.properties.snapshot import Snapshot

PAUSE_S = 5
"""How long nobody is stopped after somebody was, where nothing is said."""
AFTER_S = 30
"""How long an account may be over its limit, where nothing is said."""


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
        """What is against the rules in a decision: for the waiter, each of these was told to leave for its reason."""
        states = {self._status(account) for account in self.place.path(waiter.component)[:-1]}
        if not states - {""}:
            yield f"{waiter.id} asks, and nobody starves on its path"
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
    """What is over its limit in one pool at one moment, and may not stay so."""

    model: Model
    snapshot: Snapshot
    pool: str

    def __post_init__(self) -> None:
        self.place = self.model.pools[self.pool]
        self.used = self.model.used(self.pool)

    def _said(self, account: str, setting: str) -> str | None:
        """What the nearest account that says anything does."""
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
        """Whether what an account has over its limit may not stay."""
        usual = "evict" if self.model.is_fair(self.pool) else "keep"
        return (self._said(account, "over_limit") or usual) == "evict"

    def over(self, account: str, freed_units: Counter[tuple[str, str]] | None = None) -> Counter[str]:
        """How much of each key an account has over its limit when so much is gone."""
        going = freed_units or Counter[tuple[str, str]]()
        left = {key: units - going[account, key] for key, units in self.used[account].items()}
        return +Counter({key: units - self.place.limit(account, key) for key, units in left.items()})

    def is_due(self, account: str) -> bool:
        """Whether it has been over its limit for as long as it may."""
        since, after_s = self._noted(account), int(self._said(account, "over_limit_after_s") or AFTER_S)
        noted = since is not None and self.model.now_ms - int(since) >= after_s * 1000
        return noted and self.evicts(account) and bool(self.over(account))

    def _going(self, more_victims: Mapping[str, object]) -> Counter[tuple[str, str]]:
        """What those bring who are leaving for somebody, or for nobody as these do."""
        freed_units, owners_by_victim = Counter[tuple[str, str]](), self.model.leaving[self.pool]
        for id_ in {id_ for id_, owner in owners_by_victim.items() if owner != NO_OWNER} | more_victims.keys():
            freed_units.update(dict(self._brings(self.model.requests[id_])))
        return freed_units

    def faults(self, victims: Mapping[str, object]) -> Iterator[str]:
        """What is against the rules in a decision that these have to leave for nobody."""
        for id_ in victims:
            victim = self.model.requests[id_]
            if not victim.preemptible or victim.rank == 10 or victim.status != "allocated":
                yield f"{id_} is evicted, and protected: {victim}"
            freed_units = self._going({other: 0 for other in victims if other != id_})
            path = [account for account in self.place.path(victim.component) if self.is_due(account)]
            if not any(self.over(account, freed_units).keys() & victim.amounts.keys() for account in path):
                yield f"{id_} is evicted, and need not: due are {path}"

    def overlooked(self) -> Iterator[str]:
        """Who would have to leave, and was not told to."""
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
        """Who leaves for a limit, and need not any more; where what holds are for is not to be counted as well."""
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
        """Where it is not noted as it should be that an account is over its limit; after a pass that came to its end."""
        for account in ("pool", *self.place.accounts):
            should = self.evicts(account) and bool(self.over(account))
            if should != (self._noted(account) is not None):
                yield f"{self.pool} {account} is noted over its limit since {self._noted(account)}, and is it: {should}"
