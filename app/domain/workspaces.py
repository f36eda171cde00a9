"""A workspace at one moment: its settings, and the use of its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from app.domain.specs import WorkspaceSettings


class LimitUse(NamedTuple):
    """What is used of a limit; null is no limit."""

    present: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class Workspace:
    """The settings of a workspace, and what is used of its limits, by their names."""

    settings: WorkspaceSettings
    use: Mapping[str, LimitUse]
    component_use: Mapping[str, Mapping[str, LimitUse]]
    """Component (`type/name`) with limits of its own → limit → use."""
