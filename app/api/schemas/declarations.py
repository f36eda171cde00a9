"""Response models of declarations: the plan of a change."""

from __future__ import annotations

from collections.abc import Sequence

from app.api.schemas.over_limit import OverLimitResponse
from app.api.schemas.response_model import ResponseModel
from app.domain.declaration_diff import DeclarationPlan
from app.domain.tokens import Token


class DeclarationChangeResponse(ResponseModel):
    """One thing to be created, changed or deleted."""

    action: str
    kind: str
    pool: str
    name: str
    lines: list[str]
    """What differs, each as `what: before -> after`."""


class DeclarationPlanResponse(ResponseModel):
    """What lies between what there is and what is declared."""

    changes: list[DeclarationChangeResponse]
    sentence: str
    over_limit: Sequence[OverLimitResponse] = ()
    """The use that these changes put beyond a capacity or a limit, and what `over_limit` does with it."""

    @classmethod
    def of(cls, plan: DeclarationPlan, token: Token) -> DeclarationPlanResponse:
        """Return the response for a plan, as far as a token may see requests."""
        changes = [
            DeclarationChangeResponse(
                action=change.action, kind=change.kind, pool=change.pool, name=change.name, lines=list(change.lines)
            )
            for change in plan.changes
        ]
        uses = [OverLimitResponse.of(use, token) for use in plan.over_limit]
        return cls(changes=changes, sentence=plan.summary, over_limit=uses)
