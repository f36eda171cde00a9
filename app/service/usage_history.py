"""The use of pools over the last hours, from samples that are recorded each minute."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from app.domain.usage_history import POOL_SERIES, UnitSeries, UsageHistory
from app.service.validation import checked_name
from app.store.ledger import Ledger
from app.store.usage_samples import UsageSample, UsageSampleStore

MAX_COMPONENTS = 100
"""The most policies with a series of their own. These are the policies that used most. The series of the pool includes all
policies."""


class UsageHistories:
    """The usage histories of every pool."""

    def __init__(self, samples: UsageSampleStore, ledger: Ledger) -> None:
        self._samples, self._ledger = samples, ledger

    def record(self, workspace: str) -> None:
        """Record a sample of every pool of a workspace, unless there is a new one already."""
        for pool in self._ledger.list_pools(workspace):
            self._samples.sample_usage(workspace, pool)

    def get(self, workspace: str, pool: str) -> UsageHistory:
        """Return the use of a pool at the time of each sample: in all, and by its present policies."""
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
    """Return the units of a policy. If it is not in a complete sample it used 0; in an incomplete one its use is unknown."""
    return policies.get(component) or (0 if sample.is_complete else None,) * len(sample.keys)


def _drop_clock_jumps(samples: Sequence[UsageSample]) -> list[UsageSample]:
    """Return the samples with rising times. Samples that a wrong clock dated ahead of later ones are left out."""
    ordered: list[UsageSample] = []
    for sample in reversed(samples):
        if not ordered or sample.at_ms < ordered[-1].at_ms:
            ordered.append(sample)
    return ordered[::-1]


def _largest_users(samples: Sequence[UsageSample]) -> list[str]:
    """Return the components that used the largest parts of the pool (1. the part 2. the name), sorted by name."""
    parts = defaultdict[str, float](float)
    for sample in samples:
        for component, peaks in sample.policy_peaks.items():
            amounts = zip(peaks, sample.capacity, strict=True)
            parts[component] += sum(units / capacity for units, capacity in amounts if capacity)
    return sorted(sorted(parts, key=lambda component: (-parts[component], component))[:MAX_COMPONENTS])
