"""What is noted of pools each minute: written and read by one command each.

A note is one line: the time, the keys of the pool, its capacity and its use in their order, then those policies that used or
had reserved something: `1700000000000 cpu,gpu 16,8 4,2 1:4,1 3:0,1`. They go by the number each has in its pool. Of more than a
hundred those that used the most, and a `+` at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.clock import Clock, RedisClock
from app.domain.errors import NotFound
from app.store import codec
from app.store.scripts import Client, Scripts

LISTED = 100
"""Policies a note tells of, so that a note stays short however many there are."""
APART = 0.75
"""The part of the time between two ticks that has to have passed since the last note: ticks are late, and may be doubled."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One note."""

    at_ms: int
    keys: tuple[str, ...]
    capacity: tuple[int, ...]
    used: tuple[int, ...]
    policies: dict[str, tuple[int, ...]]
    """Component → what it used; those that are policies still."""
    whole: bool
    """Whether those it does not tell of used nothing."""


class Samples:
    """The notes on one Redis."""

    def __init__(self, client: Client, interval_s: float, kept: int, clock: Clock | None = None) -> None:
        self._scripts = Scripts(client)
        self._apart_ms, self._kept = round(interval_s * APART * 1000), kept
        self._clock = clock or RedisClock()

    def take(self, workspace: str, pool: str) -> bool:
        """Note how a pool stands; False if that was done just now, or there is no such pool any more."""
        often = {"apart_ms": self._apart_ms, "most": self._kept, "listed": LISTED}
        return self._scripts.call("sample", workspace, now=self._clock.now_ms(), pool=pool, **often).tag == "sampled"

    def of(self, workspace: str, pool: str) -> list[Sample]:
        """What was noted of a pool, oldest first."""
        reply = self._scripts.call("history", workspace, pool=pool)
        if reply.tag == "not_found":
            raise NotFound("pool", pool)
        names = {number: component for component, number in codec.pairs(reply.fields["numbers"]).items()}
        return [_sample(line, names) for line in reply.fields["samples"]]


def _sample(line: str, names: dict[str, str]) -> Sample:
    at, keys, capacity, used, *rows = line.split(" ")
    named = ((names.get(number), units) for number, _, units in (row.partition(":") for row in rows))
    policies = {component: _units(units) for component, units in named if component}
    return Sample(int(at), tuple(keys.split(",")), _units(capacity), _units(used), policies, rows[-1:] != ["+"])


def _units(text: str) -> tuple[int, ...]:
    return tuple(int(units) for units in text.split(","))
