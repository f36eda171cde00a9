"""The filter of a list of requests, and the counts of those that match it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.domain.states import FINAL_STATES, RequestState


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """The conditions of a list of requests; all of them have to hold. A condition that is empty or None does not count."""

    status: Sequence[RequestState] = ()
    component: str | None = None
    component_type: str | None = None
    pool: str | None = None
    labels: Mapping[str, str] | None = None
    id_fragment: str | None = None
    """The beginning or the end of the id."""
    text: str | None = None
    """A part of the id, the name, the component or a label as `key=value`. The case of ASCII letters does not matter."""
    visible: Sequence[str] | None = None
    """The visible components as `type/name`; a star at the end stands for any text. None: all components."""

    @property
    def has_conditions(self) -> bool:
        """True if any condition counts, so that the filter may leave requests out."""
        conditions = (self.status, self.component, self.component_type, self.pool, self.labels, self.id_fragment, self.text)
        return any(conditions) or self.visible is not None


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """Numbers of requests by state."""

    queued: int = 0
    allocated: int = 0
    preempting: int = 0
    ended: int = 0
    """The requests in a final state that are still kept."""
    is_exact: bool = True
    """False if only the newest requests were counted: then each number is a lower bound."""

    @property
    def live(self) -> int:
        """Return the number of requests that wait or hold units."""
        return self.queued + self.allocated + self.preempting

    @property
    def all(self) -> int:
        """Return the number of requests in any state."""
        return self.live + self.ended


def counts_of(count_by_status: Mapping[str, int], *, is_exact: bool) -> RequestCounts:
    """Return the counts by status as a record."""
    return RequestCounts(
        queued=count_by_status.get(RequestState.QUEUED, 0),
        allocated=count_by_status.get(RequestState.ALLOCATED, 0),
        preempting=count_by_status.get(RequestState.PREEMPTING, 0),
        ended=sum(count_by_status.get(status, 0) for status in FINAL_STATES),
        is_exact=is_exact,
    )
