"""The filter of a list of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.domain.states import RequestState


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Conditions that a listed request meets, all of them; a condition that is empty or None does not count."""

    status: Sequence[RequestState] = ()
    component: str | None = None
    component_type: str | None = None
    pool: str | None = None
    labels: Mapping[str, str] | None = None
