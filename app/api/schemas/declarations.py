"""Response models of declarations: the plan of a change."""

from __future__ import annotations

from app.api.schemas.response_model import ResponseModel
from app.domain.declaration_diff import DeclarationPlan


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

    @classmethod
    def of(cls, plan: DeclarationPlan) -> DeclarationPlanResponse:
        """Return the response for a plan."""
        changes = [
            DeclarationChangeResponse(
                action=change.action, kind=change.kind, pool=change.pool, name=change.name, lines=list(change.lines)
            )
            for change in plan.changes
        ]
        return cls(changes=changes, sentence=plan.summary)
