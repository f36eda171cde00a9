"""The samples of the use of a pool, and the maxima that its accounts keep for the next one."""

from __future__ import annotations

from collections.abc import Iterator
from operator import ge

from tests.properties.oracle import METERED
from tests.properties.snapshot import Snapshot, columns

MAX_SAMPLES = 3
"""The number of samples that are kept of a pool here."""
PEAK = "peak."
"""The fields of an account with the highest use since the last sample begin so."""


def usage_faults(snapshot: Snapshot, pool: str) -> Iterator[str]:
    """Yield the faults of the samples and the maxima of a pool."""
    lines = [line.split(" ") for line in snapshot.get("pool_usage_history", pool)]
    times = [int(line[0]) for line in lines]
    if times != sorted(set(times)) or len(lines) > MAX_SAMPLES or any(time_ms > snapshot.now_ms for time_ms in times):
        yield f"{pool} history: sampled at {times}"
    for _, keys, _, used, *words in lines:
        yield from (f"{pool} history: {fault}" for fault in _sample_faults(len(keys.split(",")), _units(used), words))
    yield from _peak_faults(snapshot, pool)


def _sample_faults(key_count: int, used: list[int], words: list[str]) -> Iterator[str]:
    """Yield faults of a sample: the pool's use is the sum of its policies, and no maximum is below the use."""
    units = {number: _units(text) for number, _, text in (word.partition(":") for word in words)}
    policies = {number: row for number, row in units.items() if not number.startswith("max")}
    sums = [sum(column) for column in zip([0] * key_count, *policies.values(), strict=True)]
    if used != sums:
        yield f"{used} used, by its policies {sums}"
    for number, peaks in units.items():
        row = used if number == "max" else policies.get(number.removeprefix("max"))
        if number.startswith("max") and not (row and peaks != row and all(map(ge, peaks, row))):
            yield f"{number} {peaks}, used {row}"


def _peak_faults(snapshot: Snapshot, pool: str) -> Iterator[str]:
    """Yield peaks below the present use; a pool may get a capacity of a metered key while requests run."""
    capacity = columns(snapshot.get("pool", pool), "limit").keys() - METERED
    accounts = {parts[1]: fields for parts, fields in snapshot.of("policy") if parts[0] == pool}
    for name, fields in {"pool": snapshot.get("pool", pool), **accounts}.items():
        used = columns(fields, "used")
        for key in used.keys() & capacity:
            if int(fields.get(PEAK + key, 0)) < used[key]:
                yield f"{pool} {name} {key}: {used[key]} used, at most {fields.get(PEAK + key)} since the last sample"


def _units(text: str) -> list[int]:
    return [int(units) for units in text.split(",")]
