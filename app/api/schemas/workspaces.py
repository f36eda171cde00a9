"""Response models of the workspace, and of the token of the call."""

from __future__ import annotations

from collections.abc import Mapping

from app.api.schemas.response_model import ResponseModel
from app.domain.specs import WorkspaceSettings
from app.domain.workspaces import Workspace


class WorkspaceResponse(ResponseModel):
    """A workspace and its settings."""

    name: str
    """The name of the workspace."""
    settings: WorkspaceSettings
    """The settings of the workspace."""
    use: Mapping[str, int]
    """Limit `max_…` → the present number that it bounds."""
    component_use: Mapping[str, Mapping[str, int]]
    """Component with limits of its own, as `type/name` → its limits with the present numbers."""

    @classmethod
    def of(cls, name: str, workspace: Workspace) -> WorkspaceResponse:
        """Return the response for a workspace."""
        return cls.model_construct(
            name=name,
            settings=workspace.settings,
            use={limit: use.present for limit, use in workspace.use.items()},
            component_use={
                component: {limit: use.present for limit, use in uses.items()}
                for component, uses in workspace.component_use.items()
            },
        )


class WhoamiResponse(ResponseModel):
    """The identity and the permissions of the token of the call."""

    name: str
    """The name of the token."""
    roles: list[str]
    """The role of the token, as a list of one."""
    sensitive: bool
    """True if the token may submit requests of preemption class 10."""
    workspaces: list[str]
    """The workspaces that the token may use; `*`: all of them."""
    components: list[str]
    """The components and component patterns that the token is bound to; empty if it is bound to none."""
    workspace: str
    """The workspace of this call."""
    permissions: list[str]
    """The permissions of the role."""
    token_needed: bool
    """True if the service answers no call without a token."""
