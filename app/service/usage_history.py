"""The use of pools over the last hours: noted each minute, and told to who looks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from app.domain.usage_history import POOL_SERIES, UnitSeries, UsageHistory
from app.service.validation import checked_name
from app.store.ledger import Ledger
from app.store.usage_samples import UsageSample, UsageSampleStore

MAX_COMPONENTS = 100
"""Policies that are told of one by one, those that used most over all: what the others used is in the pool's own series."""


class UsageHistories:
    """Notes the use of every pool, and tells what was noted."""

    def __init__(self, samples: UsageSampleStore, ledger: Ledger) -> None:
        self._samples, self._ledger = samples, ledger

    def record(self, workspace: str) -> None:
        """Note how every pool of a workspace stands, unless that was done just now."""
        for pool in self._ledger.list_pools(workspace):
            self._samples.sample_usage(workspace, pool)

    def get(self, workspace: str, pool: str) -> UsageHistory:
        """What was used of a pool at each time that was noted: in all, and by the policies it has now."""
        samples = _drop_clock_jumps(self._samples.read_usage_history(checked_name(workspace), checked_name(pool)))
        keys, components = sorted({key for sample in samples for key in sample.keys}), _largest_users(samples)

        def columns(rows: Iterable[Sequence[int | None]]) -> dict[str, UnitSeries]:
            by_key = [dict(zip(sample.keys, row, strict=True)) for sample, row in zip(samples, rows, strict=True)]
            return {key: tuple(units.get(key) for units in by_key) for key in keys}

        return UsageHistory(
            times_ms=tuple(sample.at_ms for sample in samples),
            capacity=columns(sample.capacity for sample in samples),
            series={POOL_SERIES: columns(sample.used for sample in samples)}
            | {name: columns(_units_of(name, sample, sample.policies) for sample in samples) for name in components},
            peaks={POOL_SERIES: columns(sample.peaks for sample in samples)}
            | {name: columns(_units_of(name, sample, sample.policy_peaks) for sample in samples) for name in components},
        )


def _units_of(component: str, sample: UsageSample, policies: Mapping[str, tuple[int, ...]]) -> Sequence[int | None]:
    """Return the units of a policy. One that is not in a complete sample used nothing; in another, its use is unknown."""
    return policies.get(component) or (0 if sample.is_complete else None,) * len(sample.keys)


def _drop_clock_jumps(samples: Sequence[UsageSample]) -> list[UsageSample]:
    """Times only rise: what a clock that was wrong has noted ahead of them is left out."""
    ordered: list[UsageSample] = []
    for sample in reversed(samples):
        if not ordered or sample.at_ms < ordered[-1].at_ms:
            ordered.append(sample)
    return ordered[::-1]


def _largest_users(samples: Sequence[UsageSample]) -> list[str]:
    """1. Who used the largest parts of the pool 2. the name; those few by name."""
    parts = defaultdict[str, float](float)
    for sample in samples:
        for component, peaks in sample.policy_peaks.items():
            amounts = zip(peaks, sample.capacity, strict=True)
            parts[component] += sum(units / capacity for units, capacity in amounts if capacity)
    return sorted(sorted(parts, key=lambda component: (-parts[component], component))[:MAX_COMPONENTS])
