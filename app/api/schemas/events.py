"""Response models of events: the timeline of a request, and the events of a workspace."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from app.api.schemas.response_model import Amounts, ListResponse, ResponseModel, Time, time_of
from app.domain import models
from app.domain.event_names import EVENTS
from app.domain.states import RequestState
from app.domain.tokens import Token

EVENT_TEXT = "\n".join(["The name of the event.\n", *(f"- `{name}`: {kind.meaning}" for name, kind in EVENTS.items())])
"""The description of the field `event`: a paragraph, and a list of all events."""


class RankResponse(ResponseModel):
    """The rank of a request at a preemption."""

    priority: int
    """The priority of its policy in the pool."""
    preemption_class: int
    """The preemption class of the request."""

    @classmethod
    def of(cls, rank: str | None) -> RankResponse | None:
        """Return the response for a rank, `priority,class`."""
        if rank is None:
            return None
        priority, _, preemption_class = rank.partition(",")
        return cls(priority=int(priority), preemption_class=int(preemption_class))


class VictimResponse(ResponseModel):
    """An allocation that was preempted."""

    id: str
    """The id of its request."""
    rank: RankResponse | None
    """The rank of the request at the preemption; null: unknown."""


class EventFields(ResponseModel):
    """The fields that every event has."""

    id: str
    """The id of the event, for `Last-Event-ID` and `after`."""
    event: Annotated[
        str, Field(description=EVENT_TEXT, examples=["submitted", "allocated", "preempting", "preempted", "released"])
    ]
    at: Time
    """The time of the event."""
    pool: str | None
    """The pool of the event; null: no pool."""
    reason: str | None
    """The code of the reason, such as `priority` or `reclaim` for a preemption; null: none."""
    by: str | None
    """The request for which the event happened, such as the waiter of a preemption; null: none."""
    rank: RankResponse | None
    """The rank of the preempted request, at a preemption; else null."""
    by_rank: RankResponse | None
    """The rank of the request `by`, at a preemption; else null."""
    victims: list[VictimResponse]
    """The allocations that leave for the request, with `clearing`; else empty."""
    by_origin: str | None
    """The owner and the title of the request `by`, for people; null: none, or the token cannot see its component."""
    outcome: str | None
    """The outcome of the work that a release reported, with `released`; else null."""
    exit_code: int | None
    """The exit code of the work, with `released`. A negative one is the number of a signal; null: not given."""


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
    """One entry of the timeline of a request."""

    @classmethod
    def of(cls, entry: models.TimelineEntry, token: Token) -> TimelineEntryResponse:
        """Return the response for an entry, as far as the token may see it."""
        return cls(**_event_fields(entry, token))


class TimelineEntryListResponse(ListResponse[TimelineEntryResponse]):
    """A page of the timeline of a request."""


class EventResponse(EventFields):
    """An event of one request."""

    request: str
    """The id of the request."""
    component: str
    """The name of its component."""
    component_type: str
    """The type of its component."""
    resources: Amounts
    """Resource key → units that the request asks."""
    from_: Annotated[RequestState | None, Field(serialization_alias="from")]
    """The state before the event: null at a submit, the same as `to` without a transition."""
    to: RequestState
    """The state after the event."""
    fence: int | None
    """The fence of its allocation; null: never granted."""
    owner: str | None
    """The user and the host that run it, as `user@host`; null: unknown."""
    title: str | None
    """The name of the request, else its command, else its task, at most 100 characters; null: none."""

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
    """A page of the events of a workspace."""
