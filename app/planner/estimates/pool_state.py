"""A pool at one moment, as it is played through to see when those who wait may start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from app.domain.amounts import Amounts
from app.planner.estimates.run_times import RunTimes

AccountKey: TypeAlias = tuple[str, str]
"""Account and key."""

POOL = "pool"


def fixed_share_account(policy: str) -> str:
    """What a policy has reserved, as an account of its own: on the paths of those not preemptible, before the policy."""
    return f"fixed {policy}"


@dataclass(frozen=True, slots=True)
class LeavingDeadline:
    """Somebody has been told to leave: when its present step ends, by when it is gone whatever it does, and for which of the
    holds of the scene it leaves, if for any."""

    due_s: float
    gone_s: float
    hold: int | None = None


@dataclass(frozen=True, slots=True)
class SimulatedAllocation:
    """What holds units: for how long already, until when it promised to at most, and by when it has to leave."""

    component: str
    path: tuple[str, ...]
    amounts: Amounts
    age_s: float
    batch: int
    """Those of one batch came together, and run much alike."""
    walltime_s: float | None = None
    leaving: LeavingDeadline | None = None


@dataclass(frozen=True, slots=True)
class SimulatedWaiter:
    """What waits, in the order of the queue."""

    component: str
    path: tuple[str, ...]
    amounts: Amounts
    batch: int
    walltime_s: float | None = None


@dataclass(frozen=True, slots=True)
class SimulatedHold:
    """Units kept for one who waits: less what those who leave for it still bring, beside what they have `brought`."""

    owner: int
    """Which of those who wait."""
    path: tuple[str, ...]
    freed_units: Mapping[AccountKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SimulationState:
    """One pool at one moment."""

    free_units: Mapping[AccountKey, int]
    """What is left at each account that has a limit, the pool among them."""
    allocations: Sequence[SimulatedAllocation]
    waiters: Sequence[SimulatedWaiter]
    run_times: Mapping[str, RunTimes]
    """By component."""
    all_run_times: RunTimes
    is_strict: bool = False
    holds: Sequence[SimulatedHold] = ()
    """Those with victims, in their order."""
    patience_hold: SimulatedHold | None = None
    """That of patience, which binds those behind its owner."""
