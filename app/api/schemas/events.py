"""What happened, as it is answered: the lines of a request's story, and the events of a workspace."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from app.api.schemas.requests import Amounts, Answer, Time, time_of
from app.domain import models
from app.domain.states import State

EVENTS: list[Any] = ["submitted", "allocated", "preempting", "preempted", "released"]
"""Examples."""


class RankAnswer(Answer):
    """How high somebody ranked when somebody was preempted."""

    priority: int
    preemption_class: int

    @classmethod
    def of(cls, rank: str | None) -> RankAnswer | None:
        """The answer for a rank, `priority,class`."""
        if rank is None:
            return None
        priority, _, preemption_class = rank.partition(",")
        return cls(priority=int(priority), preemption_class=int(preemption_class))


class VictimAnswer(Answer):
    """Somebody who was told to leave."""

    id: str
    rank: RankAnswer | None


class Happened(Answer):
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
    rank: RankAnswer | None
    """Of a preemption: its own rank then."""
    by_rank: RankAnswer | None
    """And that of the request on whose account it happened."""
    victims: list[VictimAnswer]
    """Of `clearing`: who was told to leave."""


def _happened(told: models.Told | models.Event) -> dict[str, Any]:
    return {
        "id": told.id,
        "event": told.event,
        "at": time_of(told.at_ms),
        "pool": told.pool,
        "reason": told.reason,
        "by": told.by,
        "rank": RankAnswer.of(told.rank),
        "by_rank": RankAnswer.of(told.by_rank),
        "victims": [VictimAnswer(id=victim, rank=RankAnswer.of(rank)) for victim, rank in told.victims],
    }


class ToldAnswer(Happened):
    """One line of a request's story."""

    @classmethod
    def of(cls, told: models.Told) -> ToldAnswer:
        """The answer for a line."""
        return cls(**_happened(told))


class EventAnswer(Happened):
    """Something that happened to one request."""

    request: str
    component: str
    component_type: str
    resources: Amounts
    from_: Annotated[State | None, Field(serialization_alias="from")]
    """The same as `to` if it is no transition."""
    to: State
    fence: int | None

    @classmethod
    def of(cls, event: models.Event) -> EventAnswer:
        """The answer for an event."""
        kind, _, name = event.component.partition("/")
        return cls(
            **_happened(event),
            request=event.request,
            component=name,
            component_type=kind,
            resources=event.resources,
            from_=event.came_from,
            to=event.to,
            fence=event.fence,
        )
