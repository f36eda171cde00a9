"""Tokens and permissions. A token has one role, some workspaces, and perhaps the permission for the sensitive class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType

from app.domain.names import component_id, is_template
from app.domain.request_origin import Origin
from app.domain.workspace_limits import NO_WAIT_LIMITS, REQUESTER_LIMITS, LimitedToken, WaitLimits

ALL_WORKSPACES = "*"
"""The entry of a token that stands for all workspaces."""


class Permission(StrEnum):
    """An action that a role may allow."""

    READ = "read"
    """Read everything in the workspace."""
    SUBMIT = "submit"
    """Submit requests."""
    ACT = "act"
    """Heartbeat, release, cancel and checkpoint requests."""
    DROP = "drop"
    """End a request in any state."""
    ADJUST = "adjust"
    """Change the capacity of pools, and existing policies."""
    SHAPE = "shape"
    """Create, change and delete pools, groups, policies, the declaration and the settings of a workspace."""
    SENSITIVE = "sensitive"
    """Submit requests of preemption class 10."""


class Role(StrEnum):
    """The purpose of a token."""

    ADMIN = "admin"
    OPERATOR = "operator"
    REQUESTER = "requester"
    VIEWER = "viewer"


ROLES: MappingProxyType[Role, frozenset[Permission]] = MappingProxyType(
    {
        Role.ADMIN: frozenset(Permission),
        Role.OPERATOR: frozenset({Permission.READ, Permission.SUBMIT, Permission.ACT, Permission.DROP, Permission.ADJUST}),
        Role.REQUESTER: frozenset({Permission.READ, Permission.SUBMIT, Permission.ACT}),
        Role.VIEWER: frozenset({Permission.READ}),
    }
)
"""The permissions of each role. A requester submits and acts only for the components of its token."""


PERMISSION_ACTIONS: MappingProxyType[Permission, str] = MappingProxyType(
    {
        Permission.READ: "read",
        Permission.SUBMIT: "submit requests",
        Permission.ACT: "heartbeat, release, checkpoint or cancel requests",
        Permission.DROP: "drop requests",
        Permission.ADJUST: "change capacities and existing policies",
        Permission.SHAPE: "create, delete or configure pools, groups, policies and the workspace",
        Permission.SENSITIVE: "submit in preemption class 10",
    }
)
"""The actions that a permission allows, in words."""


def roles_with(permission: Permission) -> tuple[Role, ...]:
    """Return the roles that have the permission, the one with the fewest permissions first."""
    return tuple(sorted((role for role in ROLES if permission in ROLES[role]), key=lambda role: len(ROLES[role])))


def role_words(roles: Sequence[Role]) -> str:
    """Return the roles in words: `the role requester, operator or admin`."""
    *first, last = roles
    return f"the role {', '.join(first)} or {last}" if first else f"the role {last}"


def default_wait_limits(role: Role) -> WaitLimits:
    """Return the default limits of a token with this role."""
    return REQUESTER_LIMITS if role is Role.REQUESTER else NO_WAIT_LIMITS


def full_component(text: str) -> str:
    """Return a component, or a pattern, with its type; a plain name is of the type orchestrator."""
    return text if "/" in text else component_id("orchestrator", text)


def _is_listed(component: str, entries: tuple[str, ...]) -> bool:
    """True if the component is one of the entries of a token, or begins like a pattern among them."""
    names, beginnings = _names_and_beginnings(entries)
    return component in names or component.startswith(beginnings)


@lru_cache(maxsize=1024)  # cached because a list of requests asks for each row
def _names_and_beginnings(entries: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the entries that name a component, and the beginnings of the patterns before their `*`, all with the type."""
    full = [full_component(entry) for entry in entries]
    return frozenset(full), tuple(entry.removesuffix("*") for entry in full if is_template(entry))


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret."""

    id: str
    name: str
    role: Role
    workspaces: tuple[str, ...]
    components: tuple[str, ...] = ()
    """The components of a requester: `name`, `type/name`, or patterns as `intern/*` and `intern/user-*`. The default type is
    orchestrator."""
    sensitive: bool = False
    rate_per_s: int | None = None  # None: the service's default; 0: no limit
    wait_limits: WaitLimits = NO_WAIT_LIMITS
    """The most waiting requests of the token in each workspace, and the most different shapes of them."""
    created_ms: int = 0
    expires_ms: int | None = None

    @property
    def permissions(self) -> frozenset[Permission]:
        """Return the permissions of the token, in its workspaces and, for a requester, for its components."""
        return ROLES[self.role] | ({Permission.SENSITIVE} if self.sensitive else frozenset())

    def has_permission(self, permission: Permission) -> bool:
        """True if the token has the permission."""
        return permission in self.permissions

    @property
    def default_workspace(self) -> str:
        """Return the workspace of a call that names none: the token's only one, else `default`."""
        (first, *rest) = self.workspaces
        return first if not rest and first != ALL_WORKSPACES else "default"

    def can_access(self, workspace: str) -> bool:
        """True if the token is valid in this workspace."""
        return ALL_WORKSPACES in self.workspaces or workspace in self.workspaces

    @property
    def share_holder(self) -> str | None:
        """Return the holder of the token share; None for a caller without a token, which has no share."""
        return None if self.id == ANONYMOUS.id else self.id

    @property
    def as_limited(self) -> LimitedToken:
        """Return the token in the form in which the ledger counts its waiters."""
        return LimitedToken(self.id, self.wait_limits)

    @property
    def is_limited(self) -> bool:
        """True if the token is bound to its components."""
        return self.role is Role.REQUESTER

    @property
    def visible_components(self) -> tuple[str, ...] | None:
        """Return the components whose requests the token may read, as `type/name` or `type/beginning*`; None: all."""
        return tuple(map(full_component, self.components)) if self.is_limited else None

    def can_see(self, component_type: str, component: str) -> bool:
        """True if the token may read the requests of this component."""
        return self.has_permission(Permission.READ) and (not self.is_limited or self.can_act_for(component_type, component))

    def can_see_origin(self, origin: Origin) -> bool:
        """True if the origin is given, and the token may read the requests of its component."""
        return bool(origin.component) and self.can_see(*origin.component.split("/", 1))

    def can_act_for(self, component_type: str, component: str) -> bool:
        """True if the token may submit and act for this component."""
        if not self.has_permission(Permission.ACT):
            return False
        return not self.is_limited or _is_listed(component_id(component_type, component), self.components)


ANONYMOUS = Token(id="anonymous", name="anonymous", role=Role.ADMIN, workspaces=(ALL_WORKSPACES,))
"""The token of every call without a token, if the service requires none."""
