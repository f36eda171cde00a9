"""Workspaces without limits: most rows have more waiting, running or ended than the defaults allow."""

from __future__ import annotations

from app.domain.specs import WorkspaceSettings
from app.domain.workspace_limits import WORKSPACE_LIMITS

NO_LIMITS = WorkspaceSettings.model_validate(dict.fromkeys(WORKSPACE_LIMITS))
"""Every limit of a workspace is null."""
