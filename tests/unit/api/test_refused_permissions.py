"""The refusal of a permission: the role of the token, the action that it may not do, and the roles that may."""

from __future__ import annotations

import pytest

from app.domain.tokens import PERMISSION_ACTIONS, ROLES, Permission, Role, roles_with
from tests.support.in_process_api import Site

POOL = {"name": "gpus", "capacity": {"gpu": 8}}
ASK = {"component": "team", "resources": {"gpu": 1}}


def test_roles_with_a_permission_begin_with_the_least_powerful() -> None:
    assert roles_with(Permission.READ) == (Role.VIEWER, Role.REQUESTER, Role.OPERATOR, Role.ADMIN)
    assert roles_with(Permission.ADJUST) == (Role.OPERATOR, Role.ADMIN)
    assert roles_with(Permission.SENSITIVE) == (Role.ADMIN,)
    assert {role for permission in Permission for role in roles_with(permission)} == set(ROLES)
    assert set(PERMISSION_ACTIONS) == set(Permission)


CALLS = [
    ("operator", "POST", "/pools", POOL, "admin"),
    ("operator", "PATCH", "/pools/gpus", {"description": "mine"}, "admin"),
    ("operator", "PUT", "/pools/gpus/policies/newcomer", {}, "admin"),
    ("operator", "DELETE", "/pools/gpus/policies/team", None, "admin"),
    ("operator", "PATCH", "/workspace", {}, "admin"),
    ("requester", "PATCH", "/pools/gpus", {"capacity": {"gpu": 9}}, "operator or admin"),
    ("requester", "DELETE", "/requests/r1", None, "operator or admin"),
    ("viewer", "POST", "/requests", ASK, "requester, operator or admin"),
    ("viewer", "POST", "/requests/r1/cancel", {}, "requester, operator or admin"),
]


@pytest.mark.parametrize(("role", "method", "path", "body", "roles"), CALLS)
def test_a_refusal_names_the_roles_that_may(site: Site, role: str, method: str, path: str, body: object, roles: str) -> None:
    site.pool(gpu=8)
    site.policy()
    secret = site.token(role, *(["team"] if role == "requester" else []))
    problem = site.ask(method, path, body, token=secret).refused(403, "not_permitted")
    assert problem["detail"].startswith(f"the role {role} may not ")
    assert problem["detail"].endswith(f"; the role {roles} may")
    assert problem["hint"] == f"use a token of the role {roles}"


def test_a_refused_class_names_the_flag_of_the_token(site: Site) -> None:
    problem = site.post("/requests", ASK | {"preemption_class": 10}, token=site.token("operator")).refused(403, "not_permitted")
    assert "the role operator may not submit in preemption class 10" in problem["detail"]
    assert problem["hint"] == "use a token of the role admin, or one that was created with --sensitive"


def test_a_refused_component_names_the_roles_that_need_no_list(site: Site) -> None:
    secret = site.token("requester", "mine")
    problem = site.post("/requests", ASK, token=secret).refused(403, "other_component")
    assert problem["hint"] == "use a token of the role operator or admin, or one that lists the component"
    change = site.post("/dry-run", {"drop": "r1"}, token=secret).refused(403, "not_permitted")
    assert change["hint"] == "use a token of the role viewer, operator or admin"
