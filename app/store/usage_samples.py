"""Usage samples: one line for each pool and minute, written and read by one Lua command each.

A sample is one line: the time, the keys of the pool, its capacity and its use in their order, then the policies with use or
reserved units: `1700000000000 cpu,gpu 16,8 4,2 1:4,1 3:0,1`. A policy is named by its number in the pool. Of more than a
hundred policies, those with the most use are listed, and a `+` ends the line.

If the use was higher since the last sample, a word has the maximum: `max:6,2` of the pool, `max1:5,1` of a policy. The accounts
keep that maximum in fields `peak.<key>`: the write of a grant raises it, the sample resets it to the use. It is exact, and no
grant needs another Redis command for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.clock import Clock, RedisClock
from app.domain.errors import NotFound
from app.store import codec
from app.store.connection import RedisClient
from app.store.scripts import Scripts, scan_pages

MAX_POLICIES = 100
"""The most policies in one sample, so that it stays short."""
PAGE = 100
"""The policies whose names one call reads, approximately: SSCAN may return more."""
MIN_INTERVAL_PART = 0.75
"""The part of the interval that has to pass between two samples. Ticks may be late or come twice."""


@dataclass(frozen=True, slots=True)
class UsageSample:
    """One sample of a pool."""

    at_ms: int
    keys: tuple[str, ...]
    capacity: tuple[int, ...]
    used: tuple[int, ...]
    peaks: tuple[int, ...]
    """The highest use since the last sample."""
    policies: dict[str, tuple[int, ...]]
    """Component → its use, of policies that still exist."""
    policy_peaks: dict[str, tuple[int, ...]]
    """Component → its highest use since the last sample."""
    is_complete: bool
    """True if the policies that are not in the sample used no units."""


class UsageSampleStore:
    """The usage samples on one Redis."""

    def __init__(self, client: RedisClient, interval_s: float, max_samples: int, clock: Clock | None = None) -> None:
        self._scripts = Scripts(client)
        self._apart_ms, self._kept = round(interval_s * MIN_INTERVAL_PART * 1000), max_samples
        self._clock = clock or RedisClock()

    def sample_usage(self, workspace: str, pool: str) -> bool:
        """Write a sample of a pool. Return False if the last one is too recent, or if the pool is deleted."""
        often = {"apart_ms": self._apart_ms, "most": self._kept, "listed": MAX_POLICIES}
        return self._scripts.call("sample_usage", workspace, now=self._clock.now_ms(), pool=pool, **often).tag == "sampled"

    def read_usage_history(self, workspace: str, pool: str) -> list[UsageSample]:
        """Return the samples of a pool, oldest first. The names of its policies are read in pages."""
        lines: list[str] = []
        names: dict[str, str] = {}
        for reply in scan_pages(self._scripts, "read_usage_history", workspace, pool=pool, count=PAGE):
            if reply.tag == "not_found":
                raise NotFound("pool", pool)
            lines += reply.fields["samples"]
            names |= {number: component for component, number in codec.to_mapping(reply.fields["numbers"]).items()}
        return [_decode_sample(line, names) for line in lines]


def _decode_sample(line: str, names: dict[str, str]) -> UsageSample:
    at_ms, keys, capacity, used, *rows = line.split(" ")
    by_number = {number: _decode_units(units) for number, colon, units in (row.partition(":") for row in rows) if colon}
    numbers = [number for number in by_number if number in names]
    return UsageSample(
        at_ms=int(at_ms),
        keys=tuple(keys.split(",")),
        capacity=_decode_units(capacity),
        used=_decode_units(used),
        peaks=by_number.get("max") or _decode_units(used),
        policies={names[number]: by_number[number] for number in numbers},
        policy_peaks={names[number]: by_number.get(f"max{number}") or by_number[number] for number in numbers},
        is_complete=rows[-1:] != ["+"],
    )


def _decode_units(text: str) -> tuple[int, ...]:
    return tuple(int(units) for units in text.split(","))
