"""A workspace at one moment: its settings, and the use of its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from app.domain.specs import WorkspaceSettings


class LimitUse(NamedTuple):
    """A limit and its use; None is no limit."""

    present: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class Workspace:
    """The settings of a workspace, and the use of its limits by name."""

    settings: WorkspaceSettings
    use: Mapping[str, LimitUse]
    component_use: Mapping[str, Mapping[str, LimitUse]]
    """Component (`type/name`) with limits of its own → limit → use."""
