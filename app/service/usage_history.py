"""The use of pools over the last hours: noted each minute, and told to who looks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from app.domain.usage_history import POOL, History, Units
from app.service.validation import checked_name
from app.store.ledger import Ledger
from app.store.usage_samples import Sample, Samples

MOST = 100
"""Policies that are told of one by one, those that used most over all: what the others used is in the pool's own series."""


class Histories:
    """Notes the use of every pool, and tells what was noted."""

    def __init__(self, samples: Samples, ledger: Ledger) -> None:
        self._samples, self._ledger = samples, ledger

    def sample(self, workspace: str) -> None:
        """Note how every pool of a workspace stands, unless that was done just now."""
        for pool in self._ledger.pools(workspace):
            self._samples.take(workspace, pool)

    def of(self, workspace: str, pool: str) -> History:
        """What was used of a pool at each time that was noted: in all, and by the policies it has now."""
        samples = _in_order(self._samples.of(checked_name(workspace), checked_name(pool)))
        keys = sorted({key for sample in samples for key in sample.keys})

        def columns(rows: Iterable[Sequence[int | None]]) -> dict[str, Units]:
            by_key = [dict(zip(sample.keys, row, strict=True)) for sample, row in zip(samples, rows, strict=True)]
            return {key: tuple(units.get(key) for units in by_key) for key in keys}

        return History(
            times_ms=tuple(sample.at_ms for sample in samples),
            capacity=columns(sample.capacity for sample in samples),
            series={POOL: columns(sample.used for sample in samples)}
            | {component: columns(_used(component, sample) for sample in samples) for component in _most(samples)},
        )


def _used(component: str, sample: Sample) -> Sequence[int | None]:
    """Who is not in a note used nothing; one that is not whole leaves open what it did."""
    return sample.policies.get(component) or (0 if sample.whole else None,) * len(sample.keys)


def _in_order(samples: Sequence[Sample]) -> list[Sample]:
    """Times only rise: what a clock that was wrong has noted ahead of them is left out."""
    kept: list[Sample] = []
    for sample in reversed(samples):
        if not kept or sample.at_ms < kept[-1].at_ms:
            kept.append(sample)
    return kept[::-1]


def _most(samples: Sequence[Sample]) -> list[str]:
    """1. Who used the largest parts of the pool 2. the name; those few by name."""
    parts = defaultdict[str, float](float)
    for sample in samples:
        for component, used in sample.policies.items():
            parts[component] += sum(units / most for units, most in zip(used, sample.capacity, strict=True) if most)
    return sorted(sorted(parts, key=lambda component: (-parts[component], component))[:MOST])
