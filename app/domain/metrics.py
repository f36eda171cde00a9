"""The numbers of the metrics of a workspace and its pools, at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from app.domain.amounts import Amounts
from app.domain.workspaces import LimitUse

CHECKPOINT_BOUNDS_S = (1, 5, 15, 30, 60, 120, 300, 600, 1800)
"""The upper bounds of the buckets of checkpoint times, in seconds. The ledger counts cumulatively."""
WAIT_BOUNDS_S = (0.01, 0.1, 1, 5, 15, 60, 300, 900, 3600, 14400, 86400)
PASS_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
"""The upper bounds of the buckets of waits and reconcile passes, in seconds.

The ledger counts each value in its first bucket, from 1; the last bucket is for values beyond all bounds.
"""


@dataclass(frozen=True, slots=True)
class PolicyMetrics:
    """One policy of a pool, or a template with its instances.

    The names of numbers and amounts are those of `read_pool_metrics.lua`.
    """

    component: str
    numbers: Mapping[str, int]
    """Name → number; numbers that do not apply are absent."""
    amounts: Mapping[str, Amounts]
    oldest_wait_s: float
    """The age of the oldest queued request in seconds; 0 if the queue is empty."""
    satisfaction: float | None
    """With fair share, the satisfaction; None if it is infinite."""
    starving: int | None
    """With fair share, the starvation: 0 no, 1 yes, 2 aggressively."""
    borrowed: Amounts
    """The units that the policy uses beyond its reserved units."""

    def combine(self, instances: Sequence[PolicyMetrics], times: int) -> PolicyMetrics:
        """Return this template and its instances as one row, without a limit. Its reserved units count `times`."""
        rows = instances or (self,)
        return replace(
            self,
            numbers={**self.numbers, "queued": sum(row.numbers["queued"] for row in instances)},
            amounts={
                "used": _sum([row.amounts["used"] for row in (self, *instances)]),
                "reserved": {key: units * times for key, units in self.amounts["reserved"].items()},
                "limit": {},
            },
            oldest_wait_s=max(row.oldest_wait_s for row in rows),
            satisfaction=min((row.satisfaction for row in rows if row.satisfaction is not None), default=None),
            starving=max((row.starving for row in rows if row.starving is not None), default=None),
            borrowed=_sum([row.borrowed for row in instances]),
        )


@dataclass(frozen=True, slots=True)
class PoolMetrics:
    """One pool, and its declared policies. The names of numbers and amounts are those of `read_pool_metrics.lua`."""

    name: str
    keys: tuple[str, ...]
    numbers: Mapping[str, int]
    amounts: Mapping[str, Amounts]
    policies: tuple[PolicyMetrics, ...]

    @property
    def borrowed(self) -> Amounts:
        """Return the units that the policies use beyond their reserved units."""
        return _sum([policy.borrowed for policy in self.policies])

    @property
    def on_hold(self) -> Amounts:
        """Return the units that holds of waiters keep free."""
        return _sum([self.amounts["patience_held"], self.amounts["victim_held"]])

    @property
    def oldest_wait_s(self) -> float:
        """Return the age of the oldest queued request in seconds; 0 if the queue is empty."""
        return max((policy.oldest_wait_s for policy in self.policies), default=0)


def _sum(amounts: list[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in amounts:
        for key, units in part.items():
            total[key] = total.get(key, 0) + units
    return total


@dataclass(frozen=True)
class WorkspaceMetrics:
    """The requests of a workspace, now and since its beginning."""

    submitted: int
    queued: int
    live: int
    leaving: int
    counts: Mapping[str, int]
    """The counters of the scripts: `name`, `name|pool` or `name|pool|more`."""
    limits: Mapping[str, LimitUse]
    """The use of each limit, by the name of the limit."""
    component_limits: Mapping[str, Mapping[str, LimitUse]]
    """The use of each limit of a component that has limits of its own, by `type/name` and the name of the limit."""

    @cached_property
    def by_name(self) -> Mapping[str, Mapping[tuple[str, ...], int]]:
        """Return counter name → labels → count, sorted."""
        counters: dict[str, dict[tuple[str, ...], int]] = {}
        for name_and_labels in sorted(self.counts):
            name, *labels = name_and_labels.split("|")
            counters.setdefault(name, {})[tuple(labels)] = self.counts[name_and_labels]
        return counters

    def counters(self, name: str) -> Mapping[tuple[str, ...], int]:
        """Return the counters of a name by their labels, sorted."""
        return self.by_name.get(name, {})

    def buckets(self, prefix: str, count: int) -> list[int]:
        """Return the counts of the numbered buckets of a histogram."""
        return [self.counts.get(f"{prefix}|{number}", 0) for number in range(1, count + 1)]
