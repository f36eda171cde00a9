"""The workspace as a whole: its settings, its pools as one declaration, and who is asking."""

from __future__ import annotations

from app.api.routing import Call
from app.api.schemas.requests import WhoAnswer, WorkspaceAnswer
from app.domain.specs import WorkspaceSettings


def show(call: Call) -> WorkspaceAnswer:
    """The workspace and its settings."""
    return WorkspaceAnswer(name=call.workspace, settings={"unmanaged": call.services.lists.unmanaged(call.workspace)})


def change(call: Call, body: WorkspaceSettings) -> WorkspaceAnswer:
    """Change settings of the workspace: those not given stay."""
    call.services.pools.configure(call.workspace, body)
    return show(call)


def whoami(call: Call) -> WhoAnswer:
    """Who your token says you are, and what you may."""
    token = call.token
    return WhoAnswer(
        name=token.name,
        roles=[token.role],
        sensitive=token.sensitive,
        workspaces=list(token.workspaces),
        components=list(token.components),
        workspace=call.workspace,
        permissions=sorted(token.permissions),
        token_needed=call.token_needed(),
    )
