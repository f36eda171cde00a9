"""The order of candidates in each discipline, and the order of preference between sets of victims: the definition.

Every function returns a sort key; its docstring numbers the criteria in the sequence of the key. Candidates are streamed lazily
(`candidates.py`), and the stream equals the candidates sorted by the key. The order of permits is `permit_preference` in
`rules.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

from app.domain.snapshot import Allocation

CandidatePosition: TypeAlias = tuple[float | str, ...]
"""The position of an allocation in the order of candidates: the sort key of its discipline."""

SetPreference: TypeAlias = tuple[int, Fraction, tuple[CandidatePosition, ...]]


def reserved_order(allocation: Allocation, priority: int) -> CandidatePosition:
    """Return the key in `reserved`: 1. lowest policy priority 2. lowest class 3. newest 4. id. 1 and 2 are the rank."""
    return priority, allocation.preemption_class, -allocation.fence, allocation.id


def classes_order(allocation: Allocation, cost: float) -> CandidatePosition:
    """Return the key in `classes`: 1. lowest cost 2. lowest class 3. newest 4. id."""
    return cost, allocation.preemption_class, -allocation.fence, allocation.id


def fair_share_order(allocation: Allocation, aggressive_only: bool) -> CandidatePosition:
    """Return the key in `fair_share`: 1. preemptible before aggressively preemptible 2. newest 3. id.

    An ordinary starving waiter has no aggressively preemptible candidates: 2 and 3 decide.
    """
    return aggressive_only, -allocation.fence, allocation.id


def over_limit_order(allocation: Allocation) -> CandidatePosition:
    """Return the key of evictions for a limit: 1. newest 2. id."""
    return -allocation.fence, allocation.id


def set_preference(positions: Sequence[CandidatePosition], cost: Fraction) -> SetPreference:
    """Return the key of a set of victims: 1. fewer victims 2. lower total cost 3. the order of candidates."""
    return len(positions), cost, tuple(positions)
