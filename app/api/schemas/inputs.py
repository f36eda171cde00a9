"""Models of query strings and of small bodies. The larger bodies are the specs of the domain."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, ValidationInfo, field_validator
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

from app.domain.field_types import Duration, StrictModel, WorkExitCode
from app.domain.names import LABEL_PATTERN, Name
from app.domain.queue_score import MAX_AMOUNT
from app.domain.specs import RequestSpec
from app.domain.states import RequestState
from app.service.validation import MAX_PAGE_ROWS

LONGEST_BATCH = 1000
"""The most requests of one batch."""
LONGEST_POLL_S = 60
LONGEST_REFERENCE = 1024
EVENT_PATTERN = r"^[0-9]{1,16}(-[0-9]{1,16})?$"
ID_FRAGMENT_PATTERN = r"^[0-9a-z]{4,20}$"
RUNNER_PATTERN = r"^[ -~]{1,128}$"

Fence = Annotated[int, Field(ge=1, le=MAX_AMOUNT)]


class QueryModel(BaseModel):
    """The base of query strings. A parameter that is not a field is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @classmethod
    def repeatable(cls) -> frozenset[str]:
        """Return the names of the parameters that may be repeated."""
        return frozenset(name for name, field in cls.model_fields.items() if _is_list(field))


def _is_list(field: FieldInfo) -> bool:
    return getattr(field.annotation, "__origin__", None) is list


class NoQuery(QueryModel):
    """A query string without parameters."""


class PageQuery(QueryModel):
    """The query of a list: the part of the list that is returned."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_ROWS)] = 100
    """The most rows of a page."""
    cursor: Annotated[str, Field(pattern=r"^[a-z0-9.:_-]{1,80}$")] | None = None
    """The `next_cursor` of the page before; without it, the first page."""


class ComponentQuery(QueryModel):
    """The query that completes the name of a component."""

    component_type: Name = "orchestrator"
    """The type of the component."""


class ComponentPageQuery(PageQuery, ComponentQuery):
    """The query of a list that belongs to a component."""


class RequestsQuery(PageQuery):
    """The filters of a list of requests. A request has to pass all of them."""

    status: Annotated[list[RequestState], Field(max_length=len(RequestState))] = []
    """The state of the requests. If repeated, each of these states passes."""
    component: Name | None = None
    """The name of the component that submitted the requests."""
    component_type: Name | None = None
    """The type of the component that submitted the requests."""
    pool: Name | None = None
    """The pool of the requests: they are or were allocated in it, or wait in its queue."""
    label: Annotated[list[Annotated[str, Field(pattern=LABEL_PATTERN[:-1] + r":.{0,255}$")]], Field(max_length=32)] = []
    """A label as `key:value`. If repeated, a request needs all of these labels."""
    id: Annotated[str, Field(pattern=ID_FRAGMENT_PATTERN)] | None = None
    """The beginning or the end of the id, at least four characters."""
    search: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """A part of the id, the name, the component or a label as `key=value`. The case of ASCII letters does not matter."""
    positions: bool = False
    """True to get the `position` of queued requests. On a very long page only the first requests have it."""
    counts: bool = False
    """True to get the `counts` of the matching requests in each state. The filter `status` is not applied to them."""


class PoolRequestsQuery(PageQuery):
    """The query of the requests of a pool."""

    view: Literal["queued", "active", "all"] = "queued"
    """The requests that wait (`queued`), that hold units (`active`), or both (`all`)."""


class PollQuery(QueryModel):
    """The query of a long poll: the longest wait, and the change that ends it."""

    wait_s: Annotated[float, Field(ge=0, le=LONGEST_POLL_S, allow_inf_nan=False)] = 0
    """Seconds to wait, at most, until the status of the request differs from `status`; 0: answer at once."""
    status: RequestState | None = None
    """The status that the client knows; without it, the status at the time of the call."""
    directive: Literal["continue", "checkpoint", "terminate"] | None = None
    """The directive that the client knows: another directive ends the wait, too. Without this parameter, only another status
    ends the wait."""


class EstimateQuery(QueryModel):
    """The query of an estimate: the detail of the answer."""

    reasons: bool = False
    """True to get for each pool the reason why the request waits."""


class SubmitQuery(QueryModel):
    """The query of a submit: the longest wait for the grant."""

    wait_s: Annotated[float, Field(ge=0, le=LONGEST_POLL_S, allow_inf_nan=False)] = 0
    """Seconds to wait, at most, until the request is no longer queued; 0: answer at once."""


class EventsQuery(QueryModel):
    """The query of events: the first event, the size of a page, and filters."""

    after: Annotated[str, Field(pattern=EVENT_PATTERN)] | None = None
    """The id of an event: only later events are returned; `0`: all events that are kept. Without it and without
    `Last-Event-ID` a stream has only new events, and a list begins with the first event."""
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_ROWS)] = 100
    """The most events of a page. A stream ignores it."""
    cursor: Annotated[str, Field(pattern=EVENT_PATTERN)] | None = None
    """The `next_cursor` of the page before, for a list. It overrides `Last-Event-ID`, which overrides `after`."""
    pool: Name | None = None
    """The name of a pool: only its events are returned."""
    component: Name | None = None
    """The name of a component: only events of its requests are returned."""
    request: Name | None = None
    """The id of a request: only its events are returned."""


class PruneQuery(QueryModel):
    """The query of a declaration."""

    prune: bool = False
    """True to delete the pools that the declaration does not list."""


class BatchBody(StrictModel):
    """The body of a batch of submits."""

    requests: Annotated[list[SkipValidation[RequestSpec]], Field(min_length=1, max_length=LONGEST_BATCH)]
    """The requests, submitted one after the other in this order. A malformed one gets an error in its place of the answer."""


class HeartbeatBody(StrictModel):
    """The body of a heartbeat."""

    fence: Fence
    """The fence of the allocation, as the grant returned it."""


class ReleaseBody(StrictModel):
    """The body of a release."""

    fence: Fence
    """The fence of the allocation, as the grant returned it."""
    outcome: Literal["succeeded", "failed", "vacated", "lost"] = "succeeded"
    """The end of the work. `succeeded`, `failed`: the work is done. `vacated`: the work has left unfinished, as its directive
    said. `lost`, for tasks only: the worker process is gone, and the task is parked again."""
    exit_code: WorkExitCode | None = None
    """The exit code of the work, with `succeeded` or `failed` only. A negative one is the number of the signal that ended the
    process. Poolkeeper keeps it for people; null: not given."""

    @field_validator("exit_code")
    @classmethod
    def _with_an_end(cls, exit_code: int | None, info: ValidationInfo) -> int | None:
        if exit_code is not None and info.data.get("outcome", "succeeded") not in ("succeeded", "failed"):
            raise ValueError("goes with succeeded and failed")
        return exit_code


class StartBody(StrictModel):
    """The body of a start."""

    fence: Fence
    """The fence of the allocation, as the grant or the message of the task has it."""
    runner: Annotated[str, Field(pattern=RUNNER_PATTERN)]
    """A name of the process that no other process uses, such as `host:pid:random`. Only the first runner may start the work."""


class AcknowledgeBody(StrictModel):
    """The body with which a worker confirms the message that a task will never run."""

    request: str | None = None
    """The ended request of the task, as the message named it; null if the message named none."""


SECONDS_WITH_DEFER: JsonDict = {
    "if": {"properties": {"state": {"const": "defer"}}},
    "then": {"required": ["seconds"], "properties": {"seconds": {"type": "integer"}}},
    "else": {"properties": {"seconds": {"type": "null"}}},
}
REFERENCE_WITH_COMPLETED: JsonDict = {
    "if": {"properties": {"state": {"const": "completed"}}},
    "else": {"properties": {"reference": {"type": "null"}, "routine": {"const": False}}},
}


class CheckpointBody(StrictModel):
    """The body of a checkpoint report."""

    model_config = ConfigDict(json_schema_extra={"allOf": [SECONDS_WITH_DEFER, REFERENCE_WITH_COMPLETED]})

    fence: Fence
    """The fence of the allocation, as the grant returned it."""
    state: Literal["started", "progress", "defer", "completed", "failed"]
    """The state of the checkpoint. `started`, `progress`: the work is being saved. `defer`: it will be saved later.
    `completed`: it is saved. `failed`: it cannot be saved."""
    seconds: Annotated[Duration | None, Field(validate_default=True)] = None
    """Seconds by which the checkpoint is deferred, with `defer` only. The `max_deferral_s` of the pool bounds their sum."""
    reference: Annotated[str, Field(min_length=1, max_length=LONGEST_REFERENCE)] | None = None
    """The place from which the work can continue, such as a path or URL, with `completed` only."""
    routine: bool = False
    """True with `completed` if no directive asked for the checkpoint: its reference is kept, and the allocation stays."""

    @field_validator("seconds")
    @classmethod
    def _with_defer(cls, seconds: int | None, info: ValidationInfo) -> int | None:
        if (seconds is None) == (info.data.get("state") == "defer"):
            raise ValueError("is required with defer" if seconds is None else "goes with defer")
        return seconds

    @field_validator("reference", "routine")
    @classmethod
    def _with_completed(cls, value: str | bool | None, info: ValidationInfo) -> str | bool | None:
        if value and info.data.get("state", "completed") != "completed":
            raise ValueError("goes with completed")
        return value


class EmptyBody(StrictModel):
    """An empty JSON object, or no body."""
