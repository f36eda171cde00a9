"""The input of the planner: one pool at one moment, as plain frozen data.

Accounts have the names of the ledger: `pool`, `group:<name>`, `policy:<type/name>`. Allocations are in order of grant
(fence), waiters in queue order, victim holds in their order. Amounts are whole numbers per resource key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.domain.amounts import Amounts
from app.domain.pool_settings import DEFAULT_MODE, DEFAULT_PRIORITY, DEFAULT_PROFILE, DEFAULT_WEIGHT, default_value


@dataclass(frozen=True, slots=True)
class PublishedStatus:
    """The statuses that the planner last published beside an account, for the next pass and for the scripts."""

    fair_shares: Amounts = field(default_factory=dict)
    """Resource key → the fair share of a policy, in parts of `queue_score.SHARE_UNITS`. Empty if the policy has no demand."""
    demand_met: frozenset[str] = frozenset()
    """The keys on which the fair share covers the whole demand."""
    starvation_status: str = ""
    """The starvation status; empty if the account does not starve."""
    below_ms: int | None = None
    """The time since which the account is below its fair share; None if it is not."""
    over_ms: int | None = None
    """The time since which the account is over a limit that has to be restored; None if it is not."""


@dataclass(frozen=True, slots=True)
class PolicyDemand:
    """The queued requests of one policy in the pool: their number, and the sum of their units."""

    requests: int
    units: Amounts


@dataclass(frozen=True, slots=True)
class AccountSnapshot:
    """A pool, a group or a policy: its use and its bounds.

    `limit` holds the limits as they were set; for the pool it is the capacity. `units_on_hold` counts the units that victim
    holds keep at the account now. `stack_exits` counts the units that ever left its stack: it grows whenever units leave.
    """

    name: str
    parent: str | None
    reserved: Amounts
    limit: Amounts
    used: Amounts
    used_fixed: Amounts
    units_on_hold: Amounts
    stack_exits: Amounts
    priority: int = DEFAULT_PRIORITY
    profile: str = DEFAULT_PROFILE
    weight: int = DEFAULT_WEIGHT
    mode: str = DEFAULT_MODE
    """The way the children of a group share."""
    creation_number: int = 0
    """The position in the order in which the groups and policies of the pool were created; the oldest has the lowest."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Setting → its text, for the account's own settings; of the pool all settings that accounts can override."""
    published: PublishedStatus = field(default_factory=PublishedStatus)


@dataclass(frozen=True, slots=True)
class Allocation:
    """A running allocation.

    `leaving_for` is None while the status is `allocated`. While it is `preempting`, it is the id of the waiter for which the
    allocation leaves, empty if the victim is orphaned, or `!` if it leaves because an account is over its limit.
    """

    id: str
    component: str
    amounts: Amounts
    fence: int
    preemptible: bool
    preemption_class: int
    checkpoint: str
    checkpoint_minutes: int | None
    walltime_s: int | None
    granted_ms: int
    checkpointed_ms: int | None = None
    """The time of the last completed checkpoint of this run."""
    chain: str | None = None
    """The label `preemption_group`; None without it."""
    leaving_for: str | None = None


@dataclass(frozen=True, slots=True)
class Waiter:
    """A queued request of the pool that owns no victim hold anywhere, or the owner of a victim hold in this pool."""

    id: str
    component: str
    amounts: Amounts
    preemptible: bool
    preemption_class: int
    submission_number: int
    """The number of its submission; a lower number is older."""
    chain: str | None = None
    queue_score: int = 0
    """The score in the pool's queue, with owners of holds: the lowest is first. Of equal scores the older request is first."""
    preempted_fence: int | None = None
    """The newest fence of the workspace at its last preemption; None if it was never preempted."""
    pools: Sequence[str] | None = None
    """The pools that may grant it; None means all pools."""

    def allows(self, pool: str) -> bool:
        """True if the request names no pools, or names this one."""
        return self.pools is None or pool in self.pools


@dataclass(frozen=True, slots=True)
class HoldSnapshot:
    """A victim hold: capacity kept for a waiter. A patience hold is not in the list."""

    owner: Waiter
    freed_units: Mapping[str, Amounts]
    """Account of the owner's path → the units that its victims have freed so far."""


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """The settings of the pool that the planner reads; None means no bound."""

    discipline: str = default_value("discipline")
    order: str = default_value("order")
    queueing: str = default_value("queueing")
    near_completion_s: int = default_value("near_completion_s")
    min_runtime_s: int = default_value("min_runtime_s")
    max_victims: int | None = default_value("max_victims") or None
    max_preemptions_per_minute: int | None = default_value("max_preemptions_per_minute")
    backoff_s: int = default_value("backoff_s")
    cost_key: str = default_value("cost_key")
    value_per_class: int | None = default_value("value_per_class")
    grace_s: int = default_value("grace_s")
    checkpoint_timeout_s: int = default_value("checkpoint_timeout_s")
    max_deferral_s: int = default_value("max_deferral_s")


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """One pool at one moment."""

    pool: str
    now_ms: int
    settings: PlannerSettings
    accounts: Mapping[str, AccountSnapshot]
    allocations: tuple[Allocation, ...]
    waiters: tuple[Waiter, ...]
    holds: tuple[HoldSnapshot, ...]
    preemptions_last_minute: int = 0
    """The number of preemptions decided in this pool in the last minute."""
    last_decision_ms: int | None = None
    """The time of the last preemptive decision of this pool."""
    first_blocked_score: int | None = None
    """Strict queueing: the score of the first waiter that capacity blocks, even if it has a hold in another pool. No waiter
    behind it may preempt. None if there is none."""
    rules_version: str = "0"
    """The version of the pool's rules. The ledger refuses a step that was planned with another version."""
    demand: Mapping[str, PolicyDemand] = field(default_factory=dict)
    """Fair share: component → its demand in this pool."""
    is_watched: bool = False
    """True if the pool is judged although no request waits."""
    has_void_starvation: bool = False
    """Fair share: True if the published starvation statuses are void, because the pool had another discipline since."""
    patience_hold_owner: str = ""
    """The id of the owner of the patience hold; empty if there is none. No decision depends on it."""
    preferred_pools: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Component of a waiter → the pools that it prefers to this one, the best first."""
