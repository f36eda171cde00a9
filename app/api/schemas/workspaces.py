"""Response models of the workspace and of the token that asks."""

from __future__ import annotations

from collections.abc import Mapping

from app.api.schemas.response_model import ResponseModel
from app.domain.specs import WorkspaceSettings
from app.domain.workspaces import Workspace


class WorkspaceResponse(ResponseModel):
    """A workspace and its settings."""

    name: str
    settings: WorkspaceSettings
    use: Mapping[str, int]
    """The present number that each limit `max_…` is compared with, by the name of the limit."""
    component_use: Mapping[str, Mapping[str, int]]
    """The same for each component with limits of its own, by `type/name`."""

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
    """Who the token says you are, and what you may."""

    name: str
    roles: list[str]
    sensitive: bool
    workspaces: list[str]
    components: list[str]
    workspace: str
    """The one this was asked in."""
    permissions: list[str]
    token_needed: bool
