"""The limits of a workspace, of a token and of a component: one table of names, defaults, counted nouns and codes of refusals.

A limit is a setting of the workspace of the same name; null is no limit. Lua gets the defaults as constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class WorkspaceLimit:
    """A limit of a workspace."""

    name: str
    """The name of the setting, such as `max_waiting`."""
    default: int
    counted: str
    """The noun for the counted records, such as `waiting requests`."""
    code: str
    """The code of the refusal; empty if no call is refused."""


WORKSPACE_LIMITS: Mapping[str, WorkspaceLimit] = MappingProxyType(
    {
        limit.name: limit
        for limit in (
            WorkspaceLimit("max_waiting", 100_000, "waiting requests", "too_many_waiting"),
            WorkspaceLimit("max_shapes", 10_000, "different shapes that wait", "too_many_shapes"),
            WorkspaceLimit("max_running", 100_000, "allocations", "too_many_running"),
            WorkspaceLimit("max_pools", 200, "pools", "too_many_pools"),
            WorkspaceLimit("max_policies", 10_000, "policies", "too_many_policies"),
            WorkspaceLimit("max_ended", 1_000_000, "ended requests kept", ""),
            WorkspaceLimit("max_bytes", 2**30, "bytes of kept request bodies", "too_many_bytes"),
        )
    }
)

TEMPLATE_LIMIT: Final = WorkspaceLimit("template_max", 0, "instances", "too_many_tenants")
"""The limit of a policy template. Its default is that of the pool setting of the same name."""

NO_LIMIT: Final = "none"
"""The text of a null limit in Redis. An absent limit is the default."""

REJECTED_KEPT_S: Final = 3600
"""Seconds for which a rejected request is kept."""

MAX_COMPONENT_LIMITS: Final = 1000
"""The most components of a workspace with limits of their own."""


@dataclass(frozen=True, slots=True)
class WaitLimits:
    """The limits of a token or a component: waiting requests, and their different shapes; None is no limit."""

    max_waiting: int | None = None
    max_shapes: int | None = None

    @property
    def is_unlimited(self) -> bool:
        """True if neither number is limited."""
        return self.max_waiting is None and self.max_shapes is None


@dataclass(frozen=True, slots=True)
class WaitUse:
    """The present numbers of the requests and shapes that the `WaitLimits` of a token limit."""

    waiting: int
    shapes: int


NO_WAIT_LIMITS: Final = WaitLimits()
REQUESTER_LIMITS: Final = WaitLimits(10_000, 1_000)
"""The default limits of a token of the role requester."""


@dataclass(frozen=True, slots=True)
class LimitedToken:
    """A token with limits, as the ledger counts its waiters in a workspace."""

    id: str
    limits: WaitLimits
