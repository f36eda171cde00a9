"""Response models of the workspace and of the token that asks."""

from __future__ import annotations

from collections.abc import Mapping

from app.api.schemas.response_model import ResponseModel


class WorkspaceResponse(ResponseModel):
    """A workspace and its settings."""

    name: str
    settings: Mapping[str, str]


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
