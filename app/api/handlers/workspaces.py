"""The settings of the workspace, and the identity and permissions of the token."""

from __future__ import annotations

from app.api.routing import Call
from app.api.schemas.workspaces import WhoamiResponse, WorkspaceResponse
from app.domain.specs import WorkspaceSettings


def get_workspace(call: Call) -> WorkspaceResponse:
    """Return the settings of the workspace and the use of its limits."""
    return WorkspaceResponse.of(call.workspace, call.services.queries.get_workspace(call.workspace))


def update_workspace(call: Call, body: WorkspaceSettings) -> WorkspaceResponse:
    """Change settings of the workspace. Settings that are not given stay."""
    call.services.pools.update_workspace(call.workspace, body)
    return get_workspace(call)


def whoami(call: Call) -> WhoamiResponse:
    """Return the identity and the permissions of the token of this call."""
    token = call.token
    return WhoamiResponse(
        name=token.name,
        roles=[token.role],
        sensitive=token.sensitive,
        workspaces=list(token.workspaces),
        components=list(token.components),
        workspace=call.workspace,
        permissions=sorted(token.permissions),
        token_needed=call.is_token_required(),
    )
