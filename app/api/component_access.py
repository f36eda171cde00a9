"""Checks of the components and requests that a token may see and act for.

`routes.py` has the permission of a route, `app/domain/tokens.py` the permissions of a role.
"""

from __future__ import annotations

from app.api.auth import forbidden_permission
from app.api.errors import HttpRefusal
from app.api.routing import Call
from app.domain.models import Request
from app.domain.queue_score import CLASS_COUNT
from app.domain.specs import RequestSpec
from app.domain.tokens import Permission, Role, Token, role_words, roles_with


def require_submittable(call: Call, spec: RequestSpec) -> None:
    """Raise unless the token may submit the request for its component, in its preemption class."""
    if not call.token.can_act_for(spec.component_type, spec.component):
        raise forbidden_component(spec.component_type, spec.component)
    require_class_permitted(call, spec)


def require_class_permitted(call: Call, spec: RequestSpec) -> None:
    """Raise 403 if class 10 is requested without the permission `sensitive`."""
    if spec.preemption_class == CLASS_COUNT - 1 and not call.token.has_permission(Permission.SENSITIVE):
        refusal = forbidden_permission(call.token, Permission.SENSITIVE)
        refusal.hint = f"{refusal.hint}, or one that was created with --sensitive"
        raise refusal


def require_request_id_visible(call: Call, request: str) -> None:
    """Raise unless the token may see the component of the request, and so act for it.

    The request is read only if the token is limited to components.
    """
    if call.token.is_limited:
        visible_request(call, call.services.requests.get(call.workspace, request))


def visible_request(call: Call, request: Request) -> Request:
    """Return the request, or raise if the token may not see it."""
    require_visible(call.token, request)
    return request


def require_visible(token: Token, request: Request) -> None:
    """Raise unless the token may see the component of the request."""
    if not token.can_see(request.component_type, request.component):
        raise other_component("this request is of a component that this token is not for")


def forbidden_component(kind: str, component: str) -> HttpRefusal:
    """Return the refusal of a component that the token is not for."""
    return other_component(f"this token is not for component {kind}/{component}")


def other_component(detail: str) -> HttpRefusal:
    """Return the refusal of a component that the token does not list; the hint names the roles that need no list."""
    hint = f"use a token of {roles_for_all_components(Permission.ACT)}, or one that lists the component"
    return HttpRefusal(403, "other_component", detail, hint=hint)


def roles_for_all_components(permission: Permission) -> str:
    """Return the roles with the permission that are not limited to components, in words."""
    return role_words([role for role in roles_with(permission) if role is not Role.REQUESTER])
