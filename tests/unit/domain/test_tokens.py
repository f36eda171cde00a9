"""Roles and tokens: permissions by workspace and component."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.domain.tokens import ANONYMOUS, ROLES, Permission, Role, Token, full_component

ONE = Token(id="1", name="one", role=Role.OPERATOR, workspaces=("default",))
ALLOWED = {
    Role.ADMIN: {"read", "submit", "act", "drop", "adjust", "shape", "sensitive"},
    Role.OPERATOR: {"read", "submit", "act", "drop", "adjust"},
    Role.REQUESTER: {"read", "submit", "act"},
    Role.VIEWER: {"read"},
}


def test_every_role_is_listed() -> None:
    assert ROLES.keys() == set(Role) == ALLOWED.keys()


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("permission", Permission)
def test_a_role_allows_what_it_is_for(role: Role, permission: Permission) -> None:
    assert replace(ONE, role=role).has_permission(permission) is (permission in ALLOWED[role])


@pytest.mark.parametrize("role", Role)
def test_sensitive_is_beside_the_role(role: Role) -> None:
    token = replace(ONE, role=role, sensitive=True)
    assert token.permissions == ALLOWED[role] | {"sensitive"}
    assert token.has_permission(Permission.SENSITIVE)


def test_a_token_is_good_in_its_workspaces() -> None:
    token = replace(ONE, workspaces=("a", "b"))
    assert [token.can_access(workspace) for workspace in ("a", "b", "c", "*", "")] == [True, True, False, False, False]
    assert replace(ONE, workspaces=("*",)).can_access("anything")
    assert not replace(ONE, workspaces=()).can_access("default")


def test_a_requester_acts_for_its_components() -> None:
    token = replace(ONE, role=Role.REQUESTER, components=("ml", "batch/nightly"))
    components = [
        ("orchestrator", "ml"),
        ("batch", "nightly"),
        ("batch", "ml"),
        ("orchestrator", "nightly"),
        ("orchestrator", "m"),
    ]
    assert [token.can_act_for(*each) for each in components] == [True, True, False, False, False]
    assert not replace(ONE, role=Role.REQUESTER).can_act_for("orchestrator", "ml")


def test_a_requester_sees_its_components_and_the_others_see_all() -> None:
    token = replace(ONE, role=Role.REQUESTER, components=("ml",))
    assert (token.can_see("orchestrator", "ml"), token.can_see("batch", "ml")) == (True, False)
    assert [role for role in Role if not replace(ONE, role=role).can_see("batch", "ml")] == [Role.REQUESTER]
    assert [role for role in Role if replace(ONE, role=role).is_limited] == [Role.REQUESTER]


def test_every_acting_role_but_the_requester_acts_for_all_components() -> None:
    acting = {role: replace(ONE, role=role).can_act_for("orchestrator", "ml") for role in Role}
    assert acting == {Role.ADMIN: True, Role.OPERATOR: True, Role.REQUESTER: False, Role.VIEWER: False}


def test_a_plain_component_is_of_the_type_orchestrator() -> None:
    assert [full_component(text) for text in ("ml", "batch/ml")] == ["orchestrator/ml", "batch/ml"]


def test_the_anonymous_caller_may_do_everything() -> None:
    assert ANONYMOUS.permissions == set(Permission)
    assert ANONYMOUS.can_access("default")
    assert ANONYMOUS.can_act_for("x", "y")
    assert (ANONYMOUS.name, ANONYMOUS.role, ANONYMOUS.rate_per_s, ANONYMOUS.expires_ms) == ("anonymous", "admin", None, None)
