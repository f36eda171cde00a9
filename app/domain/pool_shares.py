"""What the parts of a pool have and are due, as it stood at one moment: the tree of fair shares, for who looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.domain.amounts import Amounts


@dataclass(frozen=True, slots=True)
class ShareAccount:
    """A pool, a group or a policy in the tree. Shares are fractions of the pool's capacity, per key of the pool."""

    name: str
    """Of a policy the name of its component, without the type."""
    kind: str
    """`pool`, `group` or `policy`."""
    component_type: str | None
    """Of a policy."""
    parent: str | None
    """The group above; None directly below the pool, as elsewhere, and of the pool."""
    weight: int
    mode: str | None
    """How a pool or group shares among its children, `fair_share` or `fifo`; None of a policy."""
    demand: Amounts
    """Units that run and units that are waited for."""
    usage: Amounts
    """Units that run."""
    usage_share: Mapping[str, float]
    demand_share: Mapping[str, float]
    fair_share: Mapping[str, float]
    guarantee_share: Mapping[str, float]
    limit_share: Mapping[str, float]
    satisfaction: float | None
    """How much a policy has of what is due to it, of others the least below; None: infinite, as nothing is due."""
    status: str
    """`non_starving`, `starving` or `aggressively_starving`."""
    below_since_ms: int | None
    """Since when it has been below its fair share."""
    non_preemptible: tuple[str, ...]
    """Ids of a policy's running allocations that nobody may take; of a group or pool none are told."""
    aggressively_preemptible: tuple[str, ...]
    """Those only an aggressively starving policy may take."""
    preemptible: tuple[str, ...]
    """Those any starving policy may take."""
