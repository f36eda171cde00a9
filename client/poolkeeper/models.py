"""The answers of the API as frozen records. Unknown fields are skipped: a newer server may send more, an older one fewer."""

# ruff: noqa: RUF009 - the calls in defaults make fields

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Self

from poolkeeper.errors import PoolkeeperError

ALLOCATED_STATES = frozenset({"allocated", "preempting"})
"""The states in which a request holds units."""

QUEUED_STATE = "queued"

STARVING_STATES = frozenset({"starving", "aggressively_starving"})


class Record:
    """A record that is made from a JSON object."""

    __slots__ = ()

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the record of an answer. Raise PoolkeeperError if the document is no such answer."""
        try:
            present = [each for each in fields(cls) if each.name in document]  # type: ignore[arg-type]  # each kind is a dataclass
            return cls(**{each.name: _read(document[each.name], each.metadata.get("read")) for each in present})
        except (TypeError, ValueError, AttributeError) as error:
            raise PoolkeeperError(f"this is no answer of Poolkeeper's: {document!r:.200}") from error


def _read(value: Any, reader: Callable[[Any], Any] | None) -> Any:
    return value if reader is None or value is None else reader(value)


def _time_field() -> Any:
    return field(default=None, metadata={"read": datetime.fromisoformat})


def _record_field(kind: type[Record]) -> Any:
    return field(default=None, metadata={"read": kind.from_json})


def _records_field(kind: type[Record]) -> Any:
    return field(default=(), metadata={"read": lambda rows: tuple(kind.from_json(row) for row in rows)})


def _map_field() -> Any:
    return field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reason(Record):
    """The reason of a request's status; `pools` has the answer of each pool."""

    code: str
    message: str = ""
    pools: tuple[Mapping[str, Any], ...] = field(default=(), metadata={"read": tuple})


@dataclass(frozen=True, slots=True)
class Waits(Record):
    """The reason why a request is queued, as a sentence; `pools` has position, verdict and sentence of each pool."""

    sentence: str = ""
    pools: tuple[Mapping[str, Any], ...] = field(default=(), metadata={"read": tuple})


@dataclass(frozen=True, slots=True)
class Request(Record):
    """A request and its status."""

    id: str
    status: str
    component: str = ""
    component_type: str = "orchestrator"
    name: str | None = None
    pools: tuple[str, ...] | None = field(default=None, metadata={"read": tuple})
    reason: Reason | None = _record_field(Reason)
    resources: Mapping[str, int] = _map_field()
    preemptible: bool = True
    preemption_class: int = 5
    checkpoint: str = "none"
    checkpoint_minutes: int | None = None
    walltime_s: int | None = None
    retries: int = 0
    lease_s: int | None = None
    queue_ttl_s: int | None = None
    preemptions: int = 0
    resume: bool = False
    checkpoint_reference: str | None = None
    submitted_at: datetime | None = _time_field()
    granted_at: datetime | None = _time_field()
    ended_at: datetime | None = _time_field()
    outcome: str | None = None
    exit_code: int | None = None
    pool: str | None = None
    fence: int | None = None
    lease_expires_at: datetime | None = _time_field()
    directive: str | None = None
    deadline: datetime | None = _time_field()
    position: Mapping[str, int] = _map_field()
    preempted_by: str | None = None
    labels: Mapping[str, str] = _map_field()
    task: str | None = None
    started_at: datetime | None = _time_field()
    polled_at: datetime | None = _time_field()
    waits: Waits | None = _record_field(Waits)
    """The reason why it is queued; only in the answer to a submit."""

    @property
    def is_queued(self) -> bool:
        """True if the request is queued."""
        return self.status == QUEUED_STATE

    @property
    def is_allocated(self) -> bool:
        """True if the request holds its units."""
        return self.status in ALLOCATED_STATES


@dataclass(frozen=True, slots=True)
class Heartbeat(Record):
    """The answer to a heartbeat, a start or a checkpoint: the end of the lease, and the directive with its deadline."""

    id: str
    status: str
    lease_expires_at: datetime | None = _time_field()
    directive: str | None = "continue"
    deadline: datetime | None = _time_field()

    @property
    def is_allocated(self) -> bool:
        """True if the request still holds its units."""
        return self.status in ALLOCATED_STATES


@dataclass(frozen=True, slots=True)
class Task(Record):
    """A task, and the request it has now: `delayed`, `parked`, `granted`, `sent`, `started` or `ended`."""

    task: str
    status: str
    name: str = ""
    request: Request | None = _record_field(Request)
    not_before: datetime | None = _time_field()
    sent: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Pool(Record):
    """A named capacity and its use."""

    name: str
    description: str = ""
    capacity: Mapping[str, int] = _map_field()
    used: Mapping[str, int] = _map_field()
    held: Mapping[str, int] = _map_field()
    free: Mapping[str, int] = _map_field()
    borrowed: Mapping[str, int] = _map_field()
    queue_length: int = 0
    active_count: int = 0
    settings: Mapping[str, Any] = _map_field()


@dataclass(frozen=True, slots=True)
class Policy(Record):
    """A component's policy in a pool, and its usage. `settings` are its own; others are inherited."""

    pool: str
    component: str
    component_type: str = "orchestrator"
    priority: int = 0
    reserved: Mapping[str, int] = _map_field()
    limit: Mapping[str, int] = _map_field()
    weight: int = 1
    group: str | None = None
    profile: str = "batch"
    used: Mapping[str, int] = _map_field()
    used_fixed: Mapping[str, int] = _map_field()
    borrowed: Mapping[str, int] = _map_field()
    queued: int = 0
    template: str | None = None
    """The template of which it is an instance; None if it is declared."""
    policies: int | None = None
    """The number of instances of a template; None of any other policy."""
    settings: Mapping[str, Any] = _map_field()


@dataclass(frozen=True, slots=True)
class Group(Record):
    """An account between a pool and its policies. `settings` are its own; others are inherited."""

    pool: str
    name: str
    parent: str | None = None
    weight: int = 1
    reserved: Mapping[str, int] = _map_field()
    limit: Mapping[str, int] = _map_field()
    used: Mapping[str, int] = _map_field()
    used_fixed: Mapping[str, int] = _map_field()
    borrowed: Mapping[str, int] = _map_field()
    mode: str = "fair_share"
    settings: Mapping[str, Any] = _map_field()


@dataclass(frozen=True, slots=True)
class PreemptibleSplit(Record):
    """The allocations of a policy by the waiters that may preempt them: none, the aggressively starving, all that starve."""

    non_preemptible: tuple[str, ...] = field(default=(), metadata={"read": tuple})
    aggressively_preemptible: tuple[str, ...] = field(default=(), metadata={"read": tuple})
    preemptible: tuple[str, ...] = field(default=(), metadata={"read": tuple})


@dataclass(frozen=True, slots=True)
class ShareAccount(Record):
    """Usage, demand and fair share of a pool, a group or a policy. Shares are fractions of the pool's capacity, by key."""

    name: str
    kind: str
    component_type: str | None = None
    parent: str | None = None
    weight: int = 1
    mode: str | None = None
    demand: Mapping[str, int] = _map_field()
    usage: Mapping[str, int] = _map_field()
    usage_share: Mapping[str, float] = _map_field()
    demand_share: Mapping[str, float] = _map_field()
    fair_share: Mapping[str, float] = _map_field()
    guarantee_share: Mapping[str, float] = _map_field()
    limit_share: Mapping[str, float] = _map_field()
    satisfaction: float | None = None
    status: str = "non_starving"
    below_since: datetime | None = _time_field()
    allocations: PreemptibleSplit = field(default=PreemptibleSplit(), metadata={"read": PreemptibleSplit.from_json})

    @property
    def is_starving(self) -> bool:
        """True if the account has been below its fair share for too long."""
        return self.status in STARVING_STATES


@dataclass(frozen=True, slots=True)
class Rank(Record):
    """The rank of a request at a preemption."""

    priority: int = 0
    preemption_class: int = 0


@dataclass(frozen=True, slots=True)
class Victim(Record):
    """A request that was preempted for another."""

    id: str
    rank: Rank | None = _record_field(Rank)


@dataclass(frozen=True, slots=True)
class TimelineEntry(Record):
    """An event of a request. A preemption has both ranks; the event of its waiter names the victims."""

    id: str
    event: str
    at: datetime | None = _time_field()
    pool: str | None = None
    reason: str | None = None
    by: str | None = None
    rank: Rank | None = _record_field(Rank)
    by_rank: Rank | None = _record_field(Rank)
    victims: tuple[Victim, ...] = _records_field(Victim)
    by_origin: str | None = None
    outcome: str | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Caller(Record):
    """The identity of the caller, and its permissions."""

    name: str
    roles: tuple[str, ...] = field(default=(), metadata={"read": tuple})
    workspaces: tuple[str, ...] = field(default=(), metadata={"read": tuple})
    components: tuple[str, ...] = field(default=(), metadata={"read": tuple})
    workspace: str | None = None
    permissions: tuple[str, ...] = field(default=(), metadata={"read": tuple})
    sensitive: bool = False
    token_needed: bool = False


@dataclass(frozen=True, slots=True)
class Change(Record):
    """One difference between a declaration and the present state."""

    action: str
    kind: str
    pool: str
    name: str = ""
    lines: tuple[str, ...] = field(default=(), metadata={"read": tuple})


@dataclass(frozen=True, slots=True)
class LimitHolder(Record):
    """A component that uses units of a key; its requests and their owners, the largest part first."""

    component: str
    component_type: str = "orchestrator"
    units: int = 0
    requests: tuple[str, ...] = field(default=(), metadata={"read": tuple})
    owners: tuple[str, ...] = field(default=(), metadata={"read": tuple})


@dataclass(frozen=True, slots=True)
class OverLimit(Record):
    """The use of a key beyond the capacity of a pool, or the limit of a group or policy, and what `over_limit` does with it."""

    pool: str
    kind: str
    name: str
    key: str
    used: int = 0
    limit: int = 0
    beyond: int = 0
    over_limit: str = "keep"
    after_s: int | None = None
    holders: tuple[LimitHolder, ...] = _records_field(LimitHolder)
    victims: tuple[str, ...] = field(default=(), metadata={"read": tuple})
    victim_count: int = 0
    staying: int = 0
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Plan(Record):
    """All changes of a declaration, one sentence about them, and the use that they put beyond a limit."""

    changes: tuple[Change, ...] = _records_field(Change)
    sentence: str = ""
    over_limit: tuple[OverLimit, ...] = _records_field(OverLimit)
