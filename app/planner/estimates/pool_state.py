"""The input of a simulation: a pool at one moment, with its running allocations, waiters and holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

from app.domain.amounts import Amounts
from app.planner.estimates.run_times import RunTimes

AccountKey: TypeAlias = tuple[str, str]
"""Account and resource key."""

POOL = "pool"


def fixed_share_account(policy: str) -> str:
    """Return the account of a policy's reserved amounts. It precedes the policy on the paths of non-preemptible requests."""
    return f"fixed {policy}"


class EndBasis(IntEnum):
    """The basis of a simulated end, the most certain first."""

    KNOWN = 0
    """Enough run times, a promised walltime or a deadline."""
    BOUNDED = 1
    """A guess that is bounded by a deadline."""
    GUESS = 2


@dataclass(frozen=True, slots=True)
class LeavingDeadline:
    """The deadlines of a victim: the end of its present step, the latest time of its exit, and the number of the hold for which
    it leaves, if any."""

    due_s: float
    gone_s: float
    hold: int | None = None


@dataclass(frozen=True, slots=True)
class SimulatedAllocation:
    """A running allocation: its age, its promised walltime, and its deadline if it is leaving."""

    component: str
    path: tuple[str, ...]
    amounts: Amounts
    age_s: float
    batch: int
    """The number of the batch. Allocations of one batch were submitted together and run for similar times."""
    walltime_s: float | None = None
    leaving: LeavingDeadline | None = None


@dataclass(frozen=True, slots=True)
class SimulatedWaiter:
    """A queued request. Waiters are in queue order."""

    component: str
    path: tuple[str, ...]
    amounts: Amounts
    batch: int
    walltime_s: float | None = None


@dataclass(frozen=True, slots=True)
class SimulatedHold:
    """The units that a hold keeps for its owner: the owner's amounts, less the units that its victims still have to free."""

    owner: int
    """The index of the waiter."""
    path: tuple[str, ...]
    freed_units: Mapping[AccountKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SimulationState:
    """One pool at one moment."""

    free_units: Mapping[AccountKey, int]
    """The free units of each account that has a limit, the pool included."""
    allocations: Sequence[SimulatedAllocation]
    waiters: Sequence[SimulatedWaiter]
    run_times: Mapping[str, RunTimes]
    """Component → the distribution of its run times."""
    all_run_times: RunTimes
    is_strict: bool = False
    holds: Sequence[SimulatedHold] = ()
    """The victim holds, in order."""
    patience_hold: SimulatedHold | None = None
    """The patience hold, which binds the waiters behind its owner; None if there is none."""
