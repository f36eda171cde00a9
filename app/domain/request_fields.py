"""The fields of a request: one table.

A row is a field of the hash in Redis, of the record `Request`, or of both; and its name in the HTTP API if it is public. The
codec decodes the hash by the table. Tests hold the record, the response of the API, the scripts and the client's model to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class FieldKind(Enum):
    """The type of a field's value. In Redis every value is a text; an empty text is no value."""

    TEXT = auto()
    INTEGER = auto()
    FLAG = auto()
    """`1` or `0`."""
    TIME = auto()
    """Milliseconds since 1970."""
    AMOUNTS = auto()
    """`gpu=2,mcpu=4000`."""
    LABELS = auto()
    """A JSON object."""
    SHAPE = auto()
    """`pools=a,b`."""
    STATE = auto()
    REASON = auto()
    POSITIONS = auto()
    TIMELINE = auto()


@dataclass(frozen=True, slots=True)
class RequestField:
    """A field of a request: a row of the table."""

    name: str
    """The name in the hash, or in the reply of a script if it is not stored there."""
    attribute: str = ""
    """The name in the record; empty if only scripts use the field."""
    kind: FieldKind = FieldKind.TEXT
    json: str = ""
    """The name in the HTTP API; empty if the field is not public."""
    is_required: bool = False
    """True if every request has a value."""
    is_stored: bool = True
    """False if the field is not in the hash."""
    is_computed: bool = False
    """True if the codec computes the value from several fields."""


def _public(name: str, kind: FieldKind, **options: bool) -> RequestField:
    """Return a field with one name in Redis, in the record and in the API."""
    return RequestField(name, name, kind, name, **options)


def _time(name: str, **options: bool) -> RequestField:
    """Return a field for a time: `granted_ms` in Redis and in the record is `granted_at` in the API."""
    return RequestField(name, name, FieldKind.TIME, f"{name.removesuffix('_ms')}_at", **options)


REQUEST_FIELDS: tuple[RequestField, ...] = (
    # the spec
    _public("id", FieldKind.TEXT, is_required=True, is_stored=False),
    RequestField("component", "component", FieldKind.TEXT, "component", is_required=True, is_computed=True),  # `type/name`
    RequestField("component", "component_type", FieldKind.TEXT, "component_type", is_required=True, is_computed=True),
    _public("name", FieldKind.TEXT),
    _public("resources", FieldKind.AMOUNTS, is_required=True),
    _public("preemptible", FieldKind.FLAG, is_required=True),
    RequestField("class", "preemption_class", FieldKind.INTEGER, "preemption_class", is_required=True),
    _public("checkpoint", FieldKind.TEXT, is_required=True),
    _public("retries", FieldKind.INTEGER, is_required=True),
    _public("checkpoint_minutes", FieldKind.INTEGER),
    _public("walltime_s", FieldKind.INTEGER),
    _public("lease_s", FieldKind.INTEGER),
    _public("queue_ttl_s", FieldKind.INTEGER),
    _public("labels", FieldKind.LABELS),
    RequestField("origin"),  # its owner and its title
    # the end of the name of its lane: the parts of the shape besides component, preemptible and amounts
    RequestField("shape", "pools", FieldKind.SHAPE, "pools"),
    RequestField("preemption_group"),  # the digest of the label with this name
    _public("task", FieldKind.TEXT),
    RequestField("limited_by"),  # the token and the component whose limits count the request while it waits
    RequestField("bytes", kind=FieldKind.INTEGER),  # the size of its body: the names and values of its submission
    # the state
    _public("status", FieldKind.STATE, is_required=True),
    RequestField("reason", "reason", FieldKind.REASON, "reason", is_computed=True),  # its code
    RequestField("reasons"),  # the refusals of the pools, if the request was rejected
    RequestField("key_pools"),  # the pools with the asked keys, if the request was rejected for lack of keys or policies
    _public("pool", FieldKind.TEXT),
    _public("fence", FieldKind.INTEGER),
    _public("outcome", FieldKind.TEXT),
    _public("exit_code", FieldKind.INTEGER),
    RequestField("lapses", "lease_expires_ms", FieldKind.TIME, "lease_expires_at", is_stored=False, is_computed=True),
    RequestField("places", "position", FieldKind.POSITIONS, "position", is_stored=False, is_computed=True),
    # times
    RequestField("seq", "number", FieldKind.INTEGER, is_required=True),  # the submission number
    _time("submitted_ms", is_required=True),
    RequestField("queued_ms", kind=FieldKind.TIME),  # the time at which it last joined the queue
    _time("granted_ms"),
    _time("started_ms"),
    _time("ended_ms"),
    # the time of the last submission, return to the queue or poll of a waiter with a queue TTL
    _time("polled_ms", is_stored=False),
    # the run
    RequestField("runner"),  # the only runner that may start under the present fence
    RequestField("begun", kind=FieldKind.FLAG),  # the task has started once, so its queue TTL does not apply any more
    _public("resume", FieldKind.FLAG),
    RequestField("reference", "checkpoint_reference", FieldKind.TEXT, "checkpoint_reference"),
    RequestField("checkpointed_ms", kind=FieldKind.TIME),  # the time of the last completed checkpoint
    RequestField("left_fence", kind=FieldKind.INTEGER),  # the fence of the last run that ended by a preemption
    RequestField("left_by"),  # the outcome of that run; empty if it was forced
    # preemption: the victim
    _public("preemptions", FieldKind.INTEGER),
    _public("preempted_by", FieldKind.TEXT),
    RequestField("by_origin"),  # component, owner and title of that request; it counts only beside `preempted_by`
    RequestField("preempted_fence", kind=FieldKind.INTEGER),  # the newest fence of the workspace at the last preemption
    RequestField("preempting_fence", kind=FieldKind.INTEGER),  # the fence of the last preemption
    RequestField("preempting_ms", kind=FieldKind.TIME),  # the time since which it is preempting
    _public("directive", FieldKind.TEXT, is_computed=True),
    RequestField("deadline_ms", "deadline_ms", FieldKind.TIME, "deadline", is_computed=True),
    RequestField("answered", kind=FieldKind.FLAG),  # the worker has reported on the requested checkpoint
    RequestField("extended", "extended", FieldKind.FLAG),
    RequestField("deferred_s", "deferred_s", FieldKind.INTEGER),
    RequestField("failed", kind=FieldKind.FLAG),  # the requested checkpoint has failed
    RequestField("rank"),  # `priority,class` of the victim
    RequestField("by_rank"),  # `priority,class` of the waiter
    # the time since which no waiter needs it; its deadline is paused meanwhile
    RequestField("orphaned_ms", kind=FieldKind.TIME),
    RequestField("reprieved"),  # time, waiter and reason of the last reprieve
    # preemption: the waiter
    RequestField("victim_hold_pool"),  # the pool of its victim hold
    # the timeline: `events` counts the lines `e1`, `e2` …
    RequestField("events", "timeline", FieldKind.TIMELINE, is_computed=True),
)
