"""The pools of a workspace as one declaration: what there is, what a change would do, and the change."""

from __future__ import annotations

from app.api.routing import Call
from app.api.schemas.inputs import PruneQuery
from app.api.schemas.requests import Answer
from app.domain.declaration import Declaration
from app.domain.declaration_diff import Plan


class ChangeAnswer(Answer):
    """One thing to be created, changed or deleted."""

    action: str
    kind: str
    pool: str
    name: str
    lines: list[str]
    """What differs, each as `what: before -> after`."""


class PlanAnswer(Answer):
    """What lies between what there is and what is declared."""

    changes: list[ChangeAnswer]
    sentence: str

    @classmethod
    def of(cls, plan: Plan) -> PlanAnswer:
        """The answer for a plan."""
        changes = [
            ChangeAnswer(action=one.action, kind=one.kind, pool=one.pool, name=one.name, lines=list(one.lines))
            for one in plan.changes
        ]
        return cls(changes=changes, sentence=plan.sentence)


def export(call: Call) -> Declaration:
    """The pools of the workspace as a declaration; what is as by default is left out."""
    return call.services.declaring.export(call.workspace)


def plan(call: Call, query: PruneQuery, body: Declaration) -> PlanAnswer:
    """What applying the declaration would change. Nothing is changed."""
    return PlanAnswer.of(call.services.declaring.plan(call.workspace, body, query.prune))


def apply(call: Call, query: PruneQuery, body: Declaration) -> PlanAnswer:
    """Make the pools as declared, all in one step or not at all; says what was changed."""
    return PlanAnswer.of(call.services.declaring.apply(call.workspace, body, query.prune))
