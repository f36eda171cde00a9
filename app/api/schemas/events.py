"""Response models of events: the timeline of a request, and the events of a workspace."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from app.api.schemas.response_model import Amounts, ListResponse, ResponseModel, Time, time_of
from app.domain import models
from app.domain.states import RequestState
from app.domain.tokens import Token

EVENTS: list[Any] = ["submitted", "allocated", "preempting", "preempted", "released"]
"""Examples."""


class RankResponse(ResponseModel):
    """How high somebody ranked when somebody was preempted."""

    priority: int
    preemption_class: int

    @classmethod
    def of(cls, rank: str | None) -> RankResponse | None:
        """Return the response for a rank, `priority,class`."""
        if rank is None:
            return None
        priority, _, preemption_class = rank.partition(",")
        return cls(priority=int(priority), preemption_class=int(preemption_class))


class VictimResponse(ResponseModel):
    """Somebody who was told to leave."""

    id: str
    rank: RankResponse | None


class EventFields(ResponseModel):
    """What happened, and why."""

    id: str
    """To go on after: `Last-Event-ID`, or `after`."""
    event: Annotated[str, Field(examples=EVENTS)]
    """A transition: `submitted`, `allocated`, `released`, `expired`, `cancelled`, `rejected`, `preempting` (told to leave),
    `reprieved` (it may stay), `preempted` (it has left), `forced` (its units were taken back, as it had not left in time). Or a
    note that goes with none: `clearing` (others were told to leave for it), `terminating` (it has to end now), `passed_on` (it
    leaves for another one from now on), `started` (a worker, or `poolkeeper run`, has begun it)."""
    at: Time
    pool: str | None
    reason: str | None
    """Of a preemption `priority`, `reclaim` or `sensitive`."""
    by: str | None
    """The request on whose account it happened."""
    rank: RankResponse | None
    """Of a preemption: its own rank then."""
    by_rank: RankResponse | None
    """And that of the request on whose account it happened."""
    victims: list[VictimResponse]
    """Of `clearing`: who was told to leave."""
    by_origin: str | None
    """Owner and title of the request `by`, for people; null if it has none, or is of a component that the token is not for."""
    outcome: str | None
    """Of `released`: what its holder said of the work."""
    exit_code: int | None
    """Of `released`: the exit code of the work, if its holder told it; a negative one is the number of a signal."""


def _event_fields(entry: models.TimelineEntry | models.Event, token: Token) -> dict[str, Any]:
    return {
        "id": entry.id,
        "event": entry.event,
        "at": time_of(entry.at_ms),
        "pool": entry.pool,
        "reason": entry.reason,
        "by": entry.by,
        "rank": RankResponse.of(entry.rank),
        "by_rank": RankResponse.of(entry.by_rank),
        "victims": [VictimResponse(id=victim, rank=RankResponse.of(rank)) for victim, rank in entry.victims],
        "outcome": entry.outcome,
        "exit_code": entry.exit_code,
        "by_origin": str(entry.by_origin) or None if token.can_see_origin(entry.by_origin) else None,
    }


class TimelineEntryResponse(EventFields):
    """One line of a request's story."""

    @classmethod
    def of(cls, entry: models.TimelineEntry, token: Token) -> TimelineEntryResponse:
        """Return the response for a line, as far as the token may see it."""
        return cls(**_event_fields(entry, token))


class TimelineEntryListResponse(ListResponse[TimelineEntryResponse]):
    pass


class EventResponse(EventFields):
    """Something that happened to one request."""

    request: str
    component: str
    component_type: str
    resources: Amounts
    from_: Annotated[RequestState | None, Field(serialization_alias="from")]
    """The same as `to` if it is no transition."""
    to: RequestState
    fence: int | None
    owner: str | None
    """The user and the host that run it: `user@host`."""
    title: str | None
    """The name of the request, else its command, else its task; at most 100 characters."""

    @classmethod
    def of(cls, event: models.Event, token: Token) -> EventResponse:
        """Return the response for an event, as far as the token may see it."""
        kind, _, name = event.component.partition("/")
        return cls(
            **_event_fields(event, token),
            request=event.request,
            component=name,
            component_type=kind,
            resources=event.resources,
            from_=event.from_status,
            to=event.to_status,
            fence=event.fence,
            owner=event.origin.owner or None,
            title=event.origin.title or None,
        )


class EventListResponse(ListResponse[EventResponse]):
    pass
