"""Amounts: resource key → whole units, their text form in Redis, and the merge of typed resources.

All computations use exact decimals: 0.29 of a CPU is 290, not the 291 of binary floats.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Protocol, TypeAlias

from app.domain.queue_score import MAX_AMOUNT

Amounts: TypeAlias = Mapping[str, int]
"""Resource key → whole units."""

GPU = "gpu"
MCPU = "mcpu"
MEMORY_MB = "memory_mb"
STEP_RUN = "step_run"

UNBOUNDED: frozenset[str] = frozenset({MCPU, MEMORY_MB, STEP_RUN})
"""The keys that are unbounded in a pool that does not list them. Of any other key, a pool that does not list it has 0 units."""

MAX_KEYS = 32
"""The most keys of a request besides `step_run`, and the most keys of a pool."""

MAX_CPUS = MAX_AMOUNT // 1000
"""The largest `cpu_count` whose `mcpu` is an exact amount."""

BYTES: dict[str, int] = {
    unit: base**power
    for power, letter in enumerate("KMGTP", start=1)
    for unit, base in ((f"{letter}B", 1000), (f"{letter}iB", 1024))
}
"""Memory unit → bytes: `GB` is 10^9 bytes, `GiB` 2^30."""

MEMORY_PATTERN = rf"([0-9]{{1,18}}(?:\.[0-9]{{1,18}})?)({'|'.join(BYTES)})"
_MEMORY = re.compile(MEMORY_PATTERN)


class TypedResources(Protocol):
    """The typed fields of a request, as in `specs.ResourceSettings`. None does not count."""

    @property
    def gpu_count(self) -> int | None: ...
    @property
    def cpu_count(self) -> float | None: ...
    @property
    def memory(self) -> str | None: ...
    @property
    def pool_resources(self) -> Amounts: ...


def encode(amounts: Amounts) -> str:
    """Return amounts as one text that is the same for equal amounts: `gpu=2,mcpu=4000`."""
    return ",".join(f"{key}={amount}" for key, amount in sorted(amounts.items()))


def decode(text: str) -> dict[str, int]:
    """Return the amounts of a text that `encode` wrote."""
    pairs = (pair.split("=") for pair in text.split(",") if pair)
    return {key: int(amount) for key, amount in pairs}


def mcpu(cpu_count: float) -> int:
    """Return thousandths of a CPU, rounded up. Raise ValueError unless the number is between 0 and MAX_CPUS."""
    if type(cpu_count) not in (int, float) or not 0 <= cpu_count <= MAX_CPUS:
        raise ValueError(f"must be a number from 0 to {MAX_CPUS}")
    return ceil(Fraction(str(cpu_count)) * 1000)


def memory_mb(memory: str) -> int:
    """Return megabytes (10^6 bytes), rounded up, of a text like `16GiB` or `1.5GB`. Raise ValueError for any other text."""
    match = _MEMORY.fullmatch(memory)
    if match is None:
        raise ValueError(f"must be a number and one of {' '.join(BYTES)}, such as 16GiB")
    number, unit = match.groups()
    megabytes = ceil(Fraction(number) * BYTES[unit] / 10**6)
    if megabytes > MAX_AMOUNT:
        raise ValueError(f"must be at most {MAX_AMOUNT} megabytes")
    return megabytes


def merge_resources(resources: Amounts, settings: TypedResources) -> dict[str, int]:
    """Return the amounts of a request: typed fields over `pool_resources` over `resources`.

    A typed 0 removes its key. `step_run` is always 1.
    """
    merged = {**resources, **settings.pool_resources, **_typed_amounts(settings)}
    requested = {key: amount for key, amount in merged.items() if amount > 0 and key != STEP_RUN}
    if len(requested) > MAX_KEYS:
        raise ValueError(f"must ask, with resources, for at most {MAX_KEYS} keys, not {len(requested)}")
    return {**requested, STEP_RUN: 1}


def _typed_amounts(settings: TypedResources) -> dict[str, int]:
    typed: dict[str, int] = {}
    if settings.gpu_count is not None:
        typed[GPU] = settings.gpu_count
    if settings.cpu_count is not None:
        typed[MCPU] = mcpu(settings.cpu_count)
    if settings.memory is not None:
        typed[MEMORY_MB] = memory_mb(settings.memory)
    return typed
