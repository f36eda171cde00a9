"""Records read from the ledger: requests, pools, groups, policies and events at one moment. All are frozen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from app.domain.amounts import Amounts
from app.domain.reasons import Reason
from app.domain.request_origin import NO_ORIGIN, Origin
from app.domain.states import RequestState

Setting: TypeAlias = str | int | float | bool | Amounts | None
"""A value of a setting."""

Victims: TypeAlias = tuple[tuple[str, str], ...]
"""The victims of a preemption: id and rank (`priority,class`) of each."""


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One line of a request's timeline."""

    id: str
    event: str
    at_ms: int
    pool: str | None
    reason: str | None
    by: str | None
    rank: str | None = None
    """The rank of the request as `priority,class`, if the line is about a preemption."""
    by_rank: str | None = None
    victims: Victims = ()
    by_origin: Origin = NO_ORIGIN
    outcome: str | None = None
    exit_code: int | None = None


class Request(NamedTuple):  # made for every answer, and three times as fast to make as a frozen dataclass
    """a named tuple, because one is made for every answer and a frozen dataclass takes three times as long"""

    id: str
    component: str
    component_type: str
    status: RequestState
    resources: Amounts
    preemptible: bool
    preemption_class: int
    checkpoint: str
    retries: int
    submitted_ms: int
    number: int
    checkpoint_minutes: int | None = None
    walltime_s: int | None = None
    lease_s: int | None = None
    queue_ttl_s: int | None = None
    name: str | None = None
    pools: Sequence[str] | None = None
    """The pools that may grant it, sorted; None means all pools."""
    labels: Mapping[str, str] = MappingProxyType({})
    reason: Reason | None = None
    pool: str | None = None
    fence: int | None = None
    granted_ms: int | None = None
    ended_ms: int | None = None
    outcome: str | None = None
    exit_code: int | None = None
    """The exit code of its work; a negative one is the number of the signal that ended it."""
    preemptions: int = 0
    resume: bool = False
    checkpoint_reference: str | None = None
    directive: str | None = None
    deadline_ms: int | None = None
    extended: bool = False
    """True if the time for its checkpoint was extended."""
    deferred_s: int = 0
    preempted_by: str | None = None
    lease_expires_ms: int | None = None
    position: Mapping[str, int] = MappingProxyType({})
    timeline: tuple[TimelineEntry, ...] = ()
    task: str | None = None
    started_ms: int | None = None
    polled_ms: int | None = None
    """The time of its last poll; None unless it is queued and has a queue TTL."""

    @property
    def retries_left(self) -> int | None:
        """Return how often the request may still return to the queue after a preemption; None if there is no bound."""
        return None if self.retries < 0 else max(0, self.retries - self.preemptions)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The deadlines of a set of requests: their number, the number without a deadline, the first and the last deadline."""

    count: int = 0
    endless: int = 0
    first_ms: int | None = None
    last_ms: int | None = None

    def merge(self, other: Deadlines) -> Deadlines:
        """Return both sets as one."""
        firsts = [at_ms for at_ms in (self.first_ms, other.first_ms) if at_ms is not None]
        lasts = [at_ms for at_ms in (self.last_ms, other.last_ms) if at_ms is not None]
        count, endless = self.count + other.count, self.endless + other.endless
        return Deadlines(count, endless, min(firsts, default=None), max(lasts, default=None))


@dataclass(frozen=True, slots=True)
class OpenRequests:
    """The ends of the leases of all allocations, and the ends of the queue TTLs of all queued requests."""

    allocated: Deadlines = Deadlines()
    queued: Deadlines = Deadlines()


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The result of a heartbeat."""

    status: RequestState
    lease_expires_ms: int | None
    directive: str = "continue"
    deadline_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PoolAccount:
    """A group or a policy: its use and its bounds per key. A key without a limit is bounded by the pool.

    `settings` are its own; all others are inherited.
    """

    name: str
    parent: str | None
    weight: int
    reserved: Amounts
    limit: Amounts
    used: Amounts
    used_fixed: Amounts
    settings: Mapping[str, Setting]

    @property
    def borrowed(self) -> dict[str, int]:
        """Return the units used beyond the reserved share."""
        over = {key: used - self.reserved.get(key, 0) for key, used in self.used.items()}
        return {key: amount for key, amount in over.items() if amount > 0}


@dataclass(frozen=True, slots=True)
class Group(PoolAccount):
    """An account between a pool and its policies. Its mode decides how its children share."""

    mode: str = "fair_share"


@dataclass(frozen=True, slots=True)
class Policy(PoolAccount):
    """A component's account in a pool; its name is `type/name`."""

    priority: int
    queued: int
    profile: str = "batch"
    template: str | None = None
    """The template of which it is an instance, as `type/prefix*`; None if it is declared."""
    policies: int | None = None
    """The number of instances of a template; None of any other policy."""


@dataclass(frozen=True, slots=True)
class TemplateUse:
    """The use of all instances of a template together. The template itself holds nothing."""

    queued: int
    used: Amounts
    used_fixed: Amounts
    borrowed: Amounts

    @classmethod
    def of(cls, instances: Sequence[Policy]) -> TemplateUse:
        """Return the sums of these instances."""
        return cls(
            queued=sum(policy.queued for policy in instances),
            used=_sum(policy.used for policy in instances),
            used_fixed=_sum(policy.used_fixed for policy in instances),
            borrowed=_sum(policy.borrowed for policy in instances),
        )


@dataclass(frozen=True, slots=True)
class PoolHold:
    """Capacity kept free for a waiter: a victim hold (`victims`) or the patience hold (`patience`)."""

    request: str
    kind: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool with all its accounts."""

    name: str
    description: str
    capacity: Amounts
    used: Amounts
    used_fixed: Amounts
    on_hold: Amounts
    settings: Mapping[str, Setting]
    queue_length: int
    active_count: int
    groups: Mapping[str, Group]
    policies: Mapping[str, Policy]
    holds: tuple[PoolHold, ...]
    unfinished: bool

    @property
    def free(self) -> dict[str, int]:
        """Return the units without an allocation; 0 if the pool was shrunk below its use."""
        return {key: max(0, total - self.used.get(key, 0)) for key, total in self.capacity.items()}

    @property
    def borrowed(self) -> dict[str, int]:
        """Return the units that all policies use beyond their reserved shares."""
        total = _sum(policy.borrowed for policy in self.policies.values())
        return {key: amount for key, amount in total.items() if key in self.capacity}

    def template_use(self, template: Policy) -> TemplateUse:
        """Return the use of all instances of a template together."""
        return TemplateUse.of([policy for policy in self.policies.values() if policy.template == template.name])

    def template_uses(self) -> dict[str, TemplateUse]:
        """Return the use of the instances of every template by its name. One pass over the policies finds them all."""
        instances: dict[str, list[Policy]] = {name: [] for name, policy in self.policies.items() if policy.policies is not None}
        for policy in self.policies.values():
            if policy.template:
                instances.setdefault(policy.template, []).append(policy)
        return {name: TemplateUse.of(policies) for name, policies in instances.items()}


def _sum(rows: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for amounts in rows:
        total.update(amounts)
    return dict(total)


@dataclass(frozen=True, slots=True)
class Event:
    """One transition, or a note during a state (`from_status` equals `to_status`), as the stream of the workspace has it."""

    id: str
    event: str
    request: str
    at_ms: int
    component: str
    resources: Amounts
    from_status: RequestState | None
    to_status: RequestState
    pool: str | None
    fence: int | None
    reason: str | None
    by: str | None
    rank: str | None = None
    by_rank: str | None = None
    victims: Victims = ()
    origin: Origin = NO_ORIGIN
    by_origin: Origin = NO_ORIGIN
    outcome: str | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class CleanupCounts:
    """The numbers of records that a cleanup ended or removed."""

    expired_leases: int = 0
    expired_waiters: int = 0
    pruned_requests: int = 0
    idle_policies: int = 0
    """Instances of templates that were idle for `template_idle_s`."""
    cut_times: int = 0
    """Deadlines that were cut because the clock was set back."""
    times_left: int = field(default=0, compare=False)
    """1 if more deadlines may have to be cut by the next cleanup, else 0."""

    now_ms: int = field(default=0, compare=False)
    """The time of the cleanup."""

    def __add__(self, other: CleanupCounts) -> CleanupCounts:
        """Return the sums; the last two fields are those of the later cleanup."""
        sums = {each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        return CleanupCounts(**{**sums, "times_left": other.times_left, "now_ms": other.now_ms})


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A difference that an audit found: its location, the actual and the expected value."""

    kind: str
    location: str
    actual: str
    expected: str

    def __str__(self) -> str:
        return f"{self.kind} {self.location}: {self.actual}, should be {self.expected}"
