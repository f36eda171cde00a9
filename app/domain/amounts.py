"""Amounts: resource key → whole units, how they are written in Redis, and how settings become them.

Everything is computed in fractions of decimals: 0.29 of a CPU is 290, as a person would say, not the 291 of binary floats.
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
"""Keys without a bound in a pool that does not list them; any other key a pool lacks counts as none."""

MAX_KEYS = 32
"""How many keys may be asked at once, beside `step_run`; also how many a pool may list."""

MAX_CPUS = MAX_AMOUNT // 1000
"""The largest `cpu_count`: its `mcpu` is still an exact amount."""

BYTES: dict[str, int] = {
    unit: base**power
    for power, letter in enumerate("KMGTP", start=1)
    for unit, base in ((f"{letter}B", 1000), (f"{letter}iB", 1024))
}
"""Memory units: `GB` is 10^9 bytes, `GiB` 2^30."""

MEMORY_PATTERN = rf"([0-9]{{1,18}}(?:\.[0-9]{{1,18}})?)({'|'.join(BYTES)})"
_MEMORY = re.compile(MEMORY_PATTERN)


class TypedResources(Protocol):
    """The typed way to ask, as `asks.ResourceSettings` has it; None is not asked."""

    @property
    def gpu_count(self) -> int | None: ...
    @property
    def cpu_count(self) -> float | None: ...
    @property
    def memory(self) -> str | None: ...
    @property
    def pool_resources(self) -> Amounts: ...


def encode(amounts: Amounts) -> str:
    """Amounts as one text, the same for equal amounts: `gpu=2,mcpu=4000`."""
    return ",".join(f"{key}={amount}" for key, amount in sorted(amounts.items()))


def decode(text: str) -> dict[str, int]:
    """The amounts that `encode` wrote."""
    pairs = (pair.split("=") for pair in text.split(",") if pair)
    return {key: int(amount) for key, amount in pairs}


def mcpu(cpu_count: float) -> int:
    """Thousandths of a CPU, rounded up; ValueError for what is no number from 0 to MAX_CPUS."""
    if type(cpu_count) not in (int, float) or not 0 <= cpu_count <= MAX_CPUS:
        raise ValueError(f"must be a number from 0 to {MAX_CPUS}")
    return ceil(Fraction(str(cpu_count)) * 1000)


def memory_mb(memory: str) -> int:
    """Megabytes (10^6 bytes), rounded up, of a text like `16GiB` or `1.5GB`; ValueError for any other."""
    match = _MEMORY.fullmatch(memory)
    if match is None:
        raise ValueError(f"must be a number and one of {' '.join(BYTES)}, such as 16GiB")
    number, unit = match.groups()
    megabytes = ceil(Fraction(number) * BYTES[unit] / 10**6)
    if megabytes > MAX_AMOUNT:
        raise ValueError(f"must be at most {MAX_AMOUNT} megabytes")
    return megabytes


def merge_resources(resources: Amounts, settings: TypedResources) -> dict[str, int]:
    """What a request asks: typed fields over `pool_resources` over `resources`; a typed 0 removes its key; `step_run` is 1."""
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
