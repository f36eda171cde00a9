"""The tree of fair shares of a pool at one moment, for display: the use and the entitlement of each account."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.domain.amounts import Amounts


@dataclass(frozen=True, slots=True)
class ShareAccount:
    """A pool, a group or a policy in the tree. Shares are fractions of the pool's capacity, per key of the pool."""

    name: str
    """The name of the account; of a policy the name of its component, without the type."""
    kind: str
    """`pool`, `group` or `policy`."""
    component_type: str | None
    """The type of the component of a policy; else None."""
    parent: str | None
    """The group above; None directly below the pool, and for the pool."""
    weight: int
    mode: str | None
    """The way a pool or group shares among its children, `fair_share` or `fifo`; None for a policy."""
    demand: Amounts
    """The units of running and queued requests."""
    usage: Amounts
    """The units of running requests."""
    usage_share: Mapping[str, float]
    demand_share: Mapping[str, float]
    fair_share: Mapping[str, float]
    guarantee_share: Mapping[str, float]
    limit_share: Mapping[str, float]
    satisfaction: float | None
    """The satisfaction of a policy; for a pool or group the lowest below it. None is infinite: nothing is due."""
    status: str
    """`non_starving`, `starving` or `aggressively_starving`."""
    below_since_ms: int | None
    """The time since which the account is below its fair share; None if it is not."""
    non_preemptible: tuple[str, ...]
    """The ids of a policy's allocations that no waiter may preempt; empty for a group or pool."""
    aggressively_preemptible: tuple[str, ...]
    """The ids of the allocations that only an aggressively starving policy may preempt."""
    preemptible: tuple[str, ...]
    """The ids of the allocations that any starving policy may preempt."""
