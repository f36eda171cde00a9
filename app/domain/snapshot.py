"""What the planner sees: one pool at one moment, as plain frozen data.

Accounts are named as the ledger names them: `pool`, `group:<name>`, `policy:<type/name>`. Allocations come in order of grant
(fence), waiters in queue order, holds with victims in their order. Amounts are whole numbers per resource key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.domain.amounts import Amounts


@dataclass(frozen=True, slots=True)
class PublishedStatus:
    """What was last found about an account, as it is kept beside it: what the next look and the scripts go by."""

    fair_shares: Amounts = field(default_factory=dict)
    """Fair share: a policy's share of each key, in parts of `ordering.SHARE`; empty if it asked for nothing."""
    demand_met: frozenset[str] = frozenset()
    """The keys on which that is all it asks for."""
    starvation_status: str = ""
    """Whether it starves, and how; empty if it does not."""
    below_ms: int | None = None
    """Since when it is below its fair share."""
    over_ms: int | None = None
    """Since when it is over its limit, if that is not to last."""


@dataclass(frozen=True, slots=True)
class PolicyDemand:
    """What those of a policy ask who wait in the pool."""

    requests: int
    units: Amounts


@dataclass(frozen=True, slots=True)
class AccountSnapshot:
    """A pool, a group or a policy: what it holds and may hold.

    `limit` holds the limits as they were set; of the pool its capacity. `cleared` is what holds with victims keep at it at
    present, `back` how many units ever left its stack, which tells whether some did since.
    """

    name: str
    parent: str | None
    reserved: Amounts
    limit: Amounts
    used: Amounts
    used_fixed: Amounts
    units_on_hold: Amounts
    stack_exits: Amounts
    priority: int = 0
    profile: str = "batch"
    weight: int = 1
    mode: str = "fair_share"
    """Of a group: how its children share."""
    creation_number: int = 0
    """Of its pool's groups and policies which one it was: the smaller, the older."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings it says for itself, as texts; of the pool all that groups and policies may say otherwise."""
    published: PublishedStatus = field(default_factory=PublishedStatus)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Something that runs. `leaving_for` is None while `allocated`; of one that is `preempting` it is the id of the waiter
    that it leaves for, empty if that one needs it no longer, or `!` if it leaves for a limit of an account of its."""

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
    """When it last completed a checkpoint in this run."""
    chain: str | None = None
    """Its label `preemption_group`."""
    leaving_for: str | None = None


@dataclass(frozen=True, slots=True)
class Waiter:
    """Somebody in the pool's queue who has no hold with victims anywhere, or the owner of such a hold here."""

    id: str
    component: str
    amounts: Amounts
    preemptible: bool
    preemption_class: int
    submission_number: int
    """Its number of submission: the age."""
    chain: str | None = None
    queue_position: int = 0
    """Where it stands in the pool's queue, owners of holds included: the lower, the sooner. Of equals the older."""
    preempted_fence: int | None = None
    """The newest fence of the workspace when it was last preempted; None if it never was."""


@dataclass(frozen=True, slots=True)
class HoldSnapshot:
    """Capacity kept for a waiter that others leave or have left for. Holds of patience are none of these."""

    owner: Waiter
    freed_units: Mapping[str, Amounts]
    """Account of the owner's path → units that those who left for it have brought."""


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """The settings of the pool that the planner goes by; None is no bound."""

    discipline: str = "reserved"
    order: str = "share_first"
    queueing: str = "best_effort"
    near_completion_s: int = 0
    min_runtime_s: int = 0
    max_victims: int | None = None
    max_preemptions_per_minute: int | None = None
    backoff_s: int = 0
    cost_key: str = "gpu"
    value_per_class: int | None = None
    grace_s: int = 30
    checkpoint_timeout_s: int = 600
    max_deferral_s: int = 300


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
    """Preemptions decided in this pool in the last minute."""
    last_decision_ms: int | None = None
    """When the last preemptive decision of this pool was made."""
    first_blocked_position: int | None = None
    """Strict queueing: the place of the first who is blocked by capacity, be its way cleared elsewhere; none behind it asks."""
    rules_version: str = "0"
    """Which state of the pool's rules this is; a step planned by another one is not taken."""
    demand: Mapping[str, PolicyDemand] = field(default_factory=dict)
    """Fair share: component → what those of it ask who wait here."""
    is_watched: bool = False
    """It is looked at though nobody waits."""
    has_void_starvation: bool = False
    """Fair share: what is kept of who starves is from before the pool had another discipline, and void."""
    patience_hold_owner: str = ""
    """Who has the hold of patience. No decision goes by it."""
    preferred_pools: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Component → the pools that it would rather have than this one, best first; of those waiting here."""
