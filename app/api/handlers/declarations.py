"""The pools of a workspace as one declaration: export, plan and apply."""

from __future__ import annotations

from app.api.routing import Call
from app.api.schemas.declarations import DeclarationPlanResponse
from app.api.schemas.inputs import PruneQuery
from app.domain.declaration import Declaration


def export_declaration(call: Call) -> Declaration:
    """Return the pools of the workspace as a declaration. Default values are left out."""
    return call.services.declarations.export(call.workspace)


def plan_declaration(call: Call, query: PruneQuery, body: Declaration) -> DeclarationPlanResponse:
    """Return the changes that applying a declaration would make. Nothing is changed."""
    return DeclarationPlanResponse.of(call.services.declarations.plan(call.workspace, body, query.prune), call.token)


def apply_declaration(call: Call, query: PruneQuery, body: Declaration) -> DeclarationPlanResponse:
    """Apply a declaration: all changes in one atomic step, or none. The answer lists the changes."""
    return DeclarationPlanResponse.of(call.services.declarations.apply(call.workspace, body, query.prune), call.token)
