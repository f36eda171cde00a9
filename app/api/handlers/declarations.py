"""The pools of a workspace as one declaration: export, plan and apply."""

from __future__ import annotations

from app.api.routing import Call
from app.api.schemas.declarations import DeclarationPlanResponse
from app.api.schemas.inputs import PruneQuery
from app.domain.declaration import Declaration


def export_declaration(call: Call) -> Declaration:
    """The pools of the workspace as a declaration; what is as by default is left out."""
    return call.services.declarations.export(call.workspace)


def plan_declaration(call: Call, query: PruneQuery, body: Declaration) -> DeclarationPlanResponse:
    """What applying the declaration would change. Nothing is changed."""
    return DeclarationPlanResponse.of(call.services.declarations.plan(call.workspace, body, query.prune), call.token)


def apply_declaration(call: Call, query: PruneQuery, body: Declaration) -> DeclarationPlanResponse:
    """Make the pools as declared, all in one step or not at all; says what was changed."""
    return DeclarationPlanResponse.of(call.services.declarations.apply(call.workspace, body, query.prune), call.token)
