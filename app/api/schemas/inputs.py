"""Query strings, and the small request bodies; the larger bodies are the specs of the domain."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, ValidationInfo, field_validator
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

from app.domain.field_types import Duration, ExitCode, StrictModel
from app.domain.names import LABEL_PATTERN, Name
from app.domain.queue_score import MAX_AMOUNT
from app.domain.specs import RequestSpec
from app.domain.states import RequestState
from app.service.validation import MAX_PAGE_ROWS

LONGEST_BATCH = 1000
"""Requests of one batch, at most."""
LONGEST_POLL_S = 60
LONGEST_REFERENCE = 1024
EVENT_PATTERN = r"^[0-9]{1,16}(-[0-9]{1,16})?$"
ID_FRAGMENT_PATTERN = r"^[0-9a-z]{4,20}$"
RUNNER_PATTERN = r"^[ -~]{1,128}$"

Fence = Annotated[int, Field(ge=1, le=MAX_AMOUNT)]


class QueryModel(BaseModel):
    """The base of query strings. A parameter that is no field is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @classmethod
    def repeatable(cls) -> frozenset[str]:
        """Return the names of the parameters that may be repeated."""
        return frozenset(name for name, field in cls.model_fields.items() if _is_list(field))


def _is_list(field: FieldInfo) -> bool:
    return getattr(field.annotation, "__origin__", None) is list


class NoQuery(QueryModel):
    """No parameters."""


class PageQuery(QueryModel):
    """Which part of a list."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_ROWS)] = 100
    """How many rows at most."""
    cursor: Annotated[str, Field(pattern=r"^[a-z0-9.:_-]{1,80}$")] | None = None
    """The `next_cursor` of the page before."""


class ComponentQuery(QueryModel):
    """The other half of a component's name."""

    component_type: Name = "orchestrator"
    """What kind of component it is."""


class ComponentPageQuery(PageQuery, ComponentQuery):
    """A component's list."""


class RequestsQuery(PageQuery):
    """Which requests. Each filter narrows; of a repeated `status` any will do, of a repeated `label` all must hold."""

    status: Annotated[list[RequestState], Field(max_length=len(RequestState))] = []
    component: Name | None = None
    component_type: Name | None = None
    pool: Name | None = None
    """Where they are or were allocated, or wait in the queue."""
    label: Annotated[list[Annotated[str, Field(pattern=LABEL_PATTERN[:-1] + r":.{0,255}$")]], Field(max_length=32)] = []
    """`key:value`."""
    id: Annotated[str, Field(pattern=ID_FRAGMENT_PATTERN)] | None = None
    """The beginning or the end of the id, at least four characters."""
    search: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """A part of the id, the name, the component or a label as `key=value`. Capital letters of ASCII do not matter."""
    positions: bool = False
    """True: queued requests have their `position`. On a very long page only the first ones have it."""
    counts: bool = False
    """True: the answer has `counts` of the matching requests in each state. The filter `status` is not applied to them."""


class PoolRequestsQuery(PageQuery):
    """Whose of a pool."""

    view: Literal["queued", "active", "all"] = "queued"
    """Those who wait, those who hold units, or both."""


class PollQuery(QueryModel):
    """How long to wait, and for what."""

    wait_s: Annotated[float, Field(ge=0, le=LONGEST_POLL_S, allow_inf_nan=False)] = 0
    """Answer when the status differs from `status`, or after so long."""
    status: RequestState | None = None
    """The status you know; without it, the one at the time of the call."""
    directive: Literal["continue", "checkpoint", "terminate"] | None = None
    """The directive you know: answer also when it differs; without it, only the status counts."""


class EstimateQuery(QueryModel):
    """The query of an estimate: the detail of the answer."""

    reasons: bool = False
    """True: each pool also has the reason why the request waits."""


class SubmitQuery(QueryModel):
    """The query of a submit: the longest wait for the grant."""

    wait_s: Annotated[float, Field(ge=0, le=LONGEST_POLL_S, allow_inf_nan=False)] = 0
    """Answer when the request is no longer queued, or after so long."""


class EventsQuery(QueryModel):
    """Which events."""

    after: Annotated[str, Field(pattern=EVENT_PATTERN)] | None = None
    """Only those after this one (`0`: from the first that is kept). Without it and without `Last-Event-ID`: from now on; of
    a list: from the first."""
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_ROWS)] = 100
    """Of a list: how many at most."""
    cursor: Annotated[str, Field(pattern=EVENT_PATTERN)] | None = None
    """Of a list: the `next_cursor` of the page before; it goes before `Last-Event-ID`, and that before `after`."""
    pool: Name | None = None
    component: Name | None = None
    request: Name | None = None


class PruneQuery(QueryModel):
    """How much the file says."""

    prune: bool = False
    """Whether pools that are not in it are deleted."""


class BatchBody(StrictModel):
    """Many asks at once."""

    requests: Annotated[list[SkipValidation[RequestSpec]], Field(min_length=1, max_length=LONGEST_BATCH)]
    """Each is taken in for itself, in order; one that is malformed is answered in its place."""


class HeartbeatBody(StrictModel):
    """I am here."""

    fence: Fence
    """The allocation's, as the grant told it."""


class ReleaseBody(StrictModel):
    """I am done."""

    fence: Fence
    """The allocation's, as the grant told it."""
    outcome: Literal["succeeded", "failed", "vacated", "lost"] = "succeeded"
    """What became of the work: it is at its end, well or not; or (`vacated`) it is not, and has left as it was asked to; or
    (`lost`, of a task only) the process that did it is gone, and the task is parked again."""
    exit_code: ExitCode | None = None
    """The exit code of the work, if it is a process that has ended (`succeeded`, `failed`); minus the number of the signal that
    ended it. It is kept for people."""

    @field_validator("exit_code")
    @classmethod
    def _with_an_end(cls, exit_code: int | None, info: ValidationInfo) -> int | None:
        if exit_code is not None and info.data.get("outcome", "succeeded") not in ("succeeded", "failed"):
            raise ValueError("goes with succeeded and failed")
        return exit_code


class StartBody(StrictModel):
    """I begin the task that I was sent."""

    fence: Fence
    """The allocation's, as the message told it."""
    runner: Annotated[str, Field(pattern=RUNNER_PATTERN)]
    """Who begins it, in words that no other process uses, such as `host:pid:random`; only the first one may."""


class AcknowledgeBody(StrictModel):
    """I have been told that the task will never run."""

    request: str | None = None
    """The request of it that has ended, as the message told it; null if that named none."""


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
    """How far the saving of the work is."""

    model_config = ConfigDict(json_schema_extra={"allOf": [SECONDS_WITH_DEFER, REFERENCE_WITH_COMPLETED]})

    fence: Fence
    """The allocation's, as the grant told it."""
    state: Literal["started", "progress", "defer", "completed", "failed"]
    """`started` and `progress`: at it. `defer`: not now. `completed`: all is saved. `failed`: it cannot be."""
    seconds: Annotated[Duration | None, Field(validate_default=True)] = None
    """With `defer`: by how long; it is granted as far as the pool's `max_deferral_s` allows."""
    reference: Annotated[str, Field(min_length=1, max_length=LONGEST_REFERENCE)] | None = None
    """With `completed`: where it is to go on from, in words of your own."""
    routine: bool = False
    """With `completed`: it is kept, and never says that you have left, whatever you were asked to do meanwhile."""

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
    """Nothing needs to be said."""
