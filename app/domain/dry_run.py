"""What would come of something, had it been done: found by doing it to a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.domain.declaration_diff import DeclarationPlan
from app.domain.explanations import PoolExplanation
from app.domain.models import Request


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
