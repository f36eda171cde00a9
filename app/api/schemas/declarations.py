"""Response models of declarations: the plan of a change."""

from __future__ import annotations

from collections.abc import Sequence

from app.api.schemas.over_limit import OverLimitResponse
from app.api.schemas.response_model import ResponseModel
from app.domain.declaration_diff import DeclarationPlan
from app.domain.tokens import Token


class DeclarationChangeResponse(ResponseModel):
    """One pool, group or policy that is created, updated or deleted."""

    action: str
    """The change: `create`, `update` or `delete`."""
    kind: str
    """The kind of the account: `pool`, `group` or `policy`."""
    pool: str
    """The name of the pool."""
    name: str
    """The name of the pool or group; for a policy `type/name`."""
    lines: list[str]
    """The differences, each as `field: before -> after`."""


class DeclarationPlanResponse(ResponseModel):
    """The difference between the present pools and a declaration."""

    changes: list[DeclarationChangeResponse]
    """The changes that make the pools as declared."""
    sentence: str
    """The number of changes as a sentence for people."""
    over_limit: Sequence[OverLimitResponse] = ()
    """The use that these changes put beyond a capacity or a limit, and the effect of `over_limit` on it."""

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
