"""What the API answers, as frozen records. A field that is not known here is passed over: a newer server may say more, and an
older one less."""

# ruff: noqa: RUF009 - what is called there makes fields

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Self

from poolkeeper.errors import PoolkeeperError

HOLDING = frozenset({"allocated", "preempting"})
"""The states in which a request holds units."""

WAITING = "queued"

STARVING = frozenset({"starving", "aggressively_starving"})


class Record:
    """Made from a JSON object."""

    __slots__ = ()

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """The record of an answer; PoolkeeperError if it is something else."""
        try:
            given = [each for each in fields(cls) if each.name in document]  # type: ignore[arg-type]  # each kind is a dataclass
            return cls(**{each.name: _read(document[each.name], each.metadata.get("read")) for each in given})
        except (TypeError, ValueError, AttributeError) as error:
            raise PoolkeeperError(f"this is no answer of Poolkeeper's: {document!r:.200}") from error


def _read(value: Any, reader: Callable[[Any], Any] | None) -> Any:
    return value if reader is None or value is None else reader(value)


def _time() -> Any:
    return field(default=None, metadata={"read": datetime.fromisoformat})


def _part(kind: type[Record]) -> Any:
    return field(default=None, metadata={"read": kind.from_json})


def _parts(kind: type[Record]) -> Any:
    return field(default=(), metadata={"read": lambda rows: tuple(kind.from_json(row) for row in rows)})


def _map() -> Any:
    return field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reason(Record):
    """Why a request is where it is; `pools` has what each pool said."""

    code: str
    message: str = ""
    pools: tuple[Mapping[str, Any], ...] = field(default=(), metadata={"read": tuple})


@dataclass(frozen=True, slots=True)
class Request(Record):
    """One ask and where it stands."""

    id: str
    status: str
    component: str = ""
    component_type: str = "orchestrator"
    reason: Reason | None = _part(Reason)
    resources: Mapping[str, int] = _map()
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
    submitted_at: datetime | None = _time()
    granted_at: datetime | None = _time()
    ended_at: datetime | None = _time()
    outcome: str | None = None
    pool: str | None = None
    fence: int | None = None
    lease_expires_at: datetime | None = _time()
    directive: str | None = None
    deadline: datetime | None = _time()
    position: Mapping[str, int] = _map()
    preempted_by: str | None = None
    labels: Mapping[str, str] = _map()
    task: str | None = None
    started_at: datetime | None = _time()

    @property
    def queued(self) -> bool:
        """Whether it waits."""
        return self.status == WAITING

    @property
    def holds(self) -> bool:
        """Whether it has its units."""
        return self.status in HOLDING


@dataclass(frozen=True, slots=True)
class Heartbeat(Record):
    """What a heartbeat or word of a checkpoint was answered: until when the lease lasts, what the holder has to do by when."""

    id: str
    status: str
    lease_expires_at: datetime | None = _time()
    directive: str | None = "continue"
    deadline: datetime | None = _time()

    @property
    def holds(self) -> bool:
        """Whether the units are still held."""
        return self.status in HOLDING


@dataclass(frozen=True, slots=True)
class Task(Record):
    """A task, and the request it has now: `delayed`, `parked`, `granted`, `sent`, `started` or `ended`."""

    task: str
    status: str
    name: str = ""
    request: Request | None = _part(Request)
    not_before: datetime | None = _time()
    sent: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Pool(Record):
    """A named capacity and its use."""

    name: str
    description: str = ""
    capacity: Mapping[str, int] = _map()
    used: Mapping[str, int] = _map()
    held: Mapping[str, int] = _map()
    free: Mapping[str, int] = _map()
    borrowed: Mapping[str, int] = _map()
    queue_length: int = 0
    active_count: int = 0
    settings: Mapping[str, Any] = _map()


@dataclass(frozen=True, slots=True)
class Policy(Record):
    """What a component may have of a pool, and has. Its settings are those it says for itself, the others are inherited."""

    pool: str
    component: str
    component_type: str = "orchestrator"
    priority: int = 0
    reserved: Mapping[str, int] = _map()
    limit: Mapping[str, int] = _map()
    weight: int = 1
    group: str | None = None
    profile: str = "batch"
    used: Mapping[str, int] = _map()
    used_fixed: Mapping[str, int] = _map()
    borrowed: Mapping[str, int] = _map()
    queued: int = 0
    settings: Mapping[str, Any] = _map()


@dataclass(frozen=True, slots=True)
class Group(Record):
    """A node between a pool and its policies. Its settings are those it says for itself, the others are inherited."""

    pool: str
    name: str
    parent: str | None = None
    weight: int = 1
    reserved: Mapping[str, int] = _map()
    limit: Mapping[str, int] = _map()
    used: Mapping[str, int] = _map()
    used_fixed: Mapping[str, int] = _map()
    borrowed: Mapping[str, int] = _map()
    mode: str = "fair_share"
    settings: Mapping[str, Any] = _map()


@dataclass(frozen=True, slots=True)
class Split(Record):
    """The running allocations of a policy, by who may take them: nobody, the aggressively starving, all who starve."""

    non_preemptible: tuple[str, ...] = field(default=(), metadata={"read": tuple})
    aggressively_preemptible: tuple[str, ...] = field(default=(), metadata={"read": tuple})
    preemptible: tuple[str, ...] = field(default=(), metadata={"read": tuple})


@dataclass(frozen=True, slots=True)
class ShareNode(Record):
    """What a pool, a group or a policy has, wants and is due. Shares are fractions of the pool's capacity, by key."""

    name: str
    kind: str
    component_type: str | None = None
    parent: str | None = None
    weight: int = 1
    mode: str | None = None
    demand: Mapping[str, int] = _map()
    usage: Mapping[str, int] = _map()
    usage_share: Mapping[str, float] = _map()
    demand_share: Mapping[str, float] = _map()
    fair_share: Mapping[str, float] = _map()
    guarantee_share: Mapping[str, float] = _map()
    limit_share: Mapping[str, float] = _map()
    satisfaction: float | None = None
    status: str = "non_starving"
    below_since: datetime | None = _time()
    allocations: Split = field(default=Split(), metadata={"read": Split.from_json})

    @property
    def starving(self) -> bool:
        """Whether it has been below its fair share for too long."""
        return self.status in STARVING


@dataclass(frozen=True, slots=True)
class Rank(Record):
    """How high somebody ranked when somebody was preempted."""

    priority: int = 0
    preemption_class: int = 0


@dataclass(frozen=True, slots=True)
class Victim(Record):
    """Somebody who was told to leave."""

    id: str
    rank: Rank | None = _part(Rank)


@dataclass(frozen=True, slots=True)
class Told(Record):
    """One line of a request's story. Of a preemption both ranks are told, and to the one it is for: who was told to leave."""

    id: str
    event: str
    at: datetime | None = _time()
    pool: str | None = None
    reason: str | None = None
    by: str | None = None
    rank: Rank | None = _part(Rank)
    by_rank: Rank | None = _part(Rank)
    victims: tuple[Victim, ...] = _parts(Victim)


@dataclass(frozen=True, slots=True)
class Caller(Record):
    """Who the server takes us for, and what we may do."""

    name: str
    roles: tuple[str, ...] = field(default=(), metadata={"read": tuple})
    workspaces: tuple[str, ...] = field(default=(), metadata={"read": tuple})
    components: tuple[str, ...] = field(default=(), metadata={"read": tuple})
    workspace: str | None = None
    permissions: tuple[str, ...] = field(default=(), metadata={"read": tuple})


@dataclass(frozen=True, slots=True)
class Change(Record):
    """One difference between a declaration and what is."""

    action: str
    kind: str
    pool: str
    name: str = ""
    lines: tuple[str, ...] = field(default=(), metadata={"read": tuple})


@dataclass(frozen=True, slots=True)
class Plan(Record):
    """All differences, and one sentence about them."""

    changes: tuple[Change, ...] = _parts(Change)
    sentence: str = ""
