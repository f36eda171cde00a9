"""Policy templates over HTTP: patterns, lists, refusals, the file, and what is told of their policies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.names import is_policy_name, is_template
from tests.support.in_process_api import Site, an_ask

PATTERN = "must be 1 to 63 of A-Z a-z 0-9 _ . - and begin with a letter or digit; a template ends with its only *"


@pytest.mark.parametrize("component", ["a*b*", "*x", "**", "a*b", "-*", "a b*", "a%2F*", "x" * 63 + "*", "user-%0a*"])
def test_a_wrong_pattern_is_refused_with_the_field_and_a_reason(site: Site, component: str) -> None:
    site.pool()
    answer = site.put(f"/pools/gpus/policies/{component}", {})
    if "%2F" in component:
        assert answer.status == 404
    else:
        assert answer.malformed() == {"component": PATTERN}
    declared = {"pools": [{"name": "gpus", "capacity": {"gpu": 8}, "policies": [{"component": component}]}]}
    answer = site.put("/declaration", declared)
    assert answer.malformed() == {"pools.0.policies.0.component": PATTERN}


@pytest.mark.parametrize("component", ["*", "a*", "A.b_c-*", "x" * 62 + "*"])
def test_a_pattern_has_its_only_star_at_the_end(site: Site, component: str) -> None:
    site.pool()
    assert site.put(f"/pools/gpus/policies/{component}", {}).status == 201
    assert site.get(f"/pools/gpus/policies/{component}").body["policies"] == 0
    assert site.delete(f"/pools/gpus/policies/{component}").status == 204


@given(st.text(alphabet="aZ0_.-*/ \n|:{}", max_size=66))
def test_a_name_is_a_component_or_a_template_and_never_both(text: str) -> None:
    body = text.removesuffix("*")
    is_valid = 1 <= len(text) <= 63 and "*" not in body and (body[:1].isalnum() or text == "*")
    is_valid = is_valid and all(letter.isalnum() or letter in "_.-" for letter in body)
    assert is_policy_name(text) == is_valid
    assert not is_valid or is_template(text) == ("*" in text)


def test_a_template_is_no_component_of_a_request(site: Site) -> None:
    site.pool()
    site.policy("user-*")
    assert "component" in site.post("/requests", an_ask("user-*", gpu=1)).malformed()
    assert "component" in site.post("/requests", an_ask("*", gpu=1)).malformed()


def test_lists_show_the_number_of_instances_of_a_template_and_the_template_of_an_instance(everywhere: Site) -> None:
    everywhere.pool()
    everywhere.policy("user-*", limit={"gpu": 1}, priority=2)
    everywhere.policy("t", priority=1)
    for component in ("user-ana", "user-ana", "user-bob", "t"):
        everywhere.submit(component, gpu=1)
    rows = everywhere.get("/pools/gpus/policies").body["items"]
    assert [(row["component"], row["template"], row["policies"], row["queued"], row["used"]["gpu"]) for row in rows] == [
        ("user-*", None, 2, 1, 2),  # a template shows what its policies use together
        ("user-ana", "user-*", None, 1, 1),
        ("user-bob", "user-*", None, 0, 1),
        ("t", None, None, 0, 1),
    ]
    assert everywhere.get("/pools/gpus/policies/user-*").body["borrowed"] == {"gpu": 2}
    assert everywhere.get("/components/user-ana/policies").body["items"][0]["template"] == "user-*"
    assert everywhere.get("/components/user-*/policies").body["items"][0]["policies"] == 2


def test_files_and_plans_hold_templates_only(everywhere: Site) -> None:
    everywhere.pool()
    everywhere.policy("user-*", limit={"gpu": 1}, settings={"template_max": 5, "template_idle_s": 60})
    held = everywhere.submit("user-ana", gpu=1)
    exported = everywhere.get("/declaration").body
    assert [row["component"] for row in exported["pools"][0]["policies"]] == ["user-*"]
    assert everywhere.put("/declaration", exported).body["sentence"] == "nothing to change"
    policies = exported["pools"][0]["policies"]
    policies.append({"component": "user-ana", "limit": {"gpu": 2}})
    assert everywhere.put("/declaration", exported).body["sentence"] == "1 to create, 0 to change, 0 to delete"
    assert everywhere.submit("user-ana", gpu=1)["status"] == "allocated"
    assert everywhere.get("/pools/gpus/policies/user-ana").body["template"] is None
    everywhere.submit("user-bob", gpu=1)
    del policies[0]
    assert everywhere.put("/declaration", exported).refused(409, "in_use")
    assert everywhere.get("/pools/gpus/policies/user-*").body["policies"] == 1
    assert held["status"] == "allocated"


def test_a_template_may_reserve_what_fits_template_max_times(everywhere: Site) -> None:
    everywhere.pool(gpu=4)
    assert everywhere.put("/pools/gpus/policies/user-*", {"reserved": {"gpu": 1}}).refused(422, "overpromised")
    huge = {"reserved": {"gpu": 2**53 - 1}, "settings": {"template_max": 100_000}}
    everywhere.put("/pools/gpus/policies/user-*", huge).refused(422, "reserved_beyond_limit")
    row = {"component": "user-*", "reserved": {"gpu": 1}}
    pool: dict[str, Any] = {"name": "gpus", "capacity": {"gpu": 4}, "policies": [row]}
    everywhere.put("/declaration", {"pools": [pool]}).refused(422, "overpromised")
    pool["settings"] = {"template_max": 4}
    assert everywhere.put("/declaration", {"pools": [pool]}).status == 200
    other = everywhere.put("/pools/gpus/policies/t", {"reserved": {"gpu": 1}})
    assert other.refused(422, "overpromised")
    pool["settings"] = {"template_max": 3}
    assert everywhere.put("/declaration", {"pools": [pool]}).status == 200
    assert everywhere.put("/pools/gpus/policies/t", {"reserved": {"gpu": 1}}).status == 201


def test_a_full_template_is_answered_429(everywhere: Site) -> None:
    everywhere.pool(settings={"template_max": 1})
    everywhere.policy("*")
    everywhere.submit("ana", gpu=1)
    answer = everywhere.post("/requests", an_ask("bob", gpu=1))
    problem = answer.refused(429, "too_many_tenants")
    told = {name: problem[name] for name in ("limit_of", "limit_name", "limit", "present")}
    assert told == {"limit_of": "template/orchestrator/*", "limit_name": "template_max", "limit": 1, "present": 1}


def test_the_settings_of_templates_are_not_for_groups(site: Site) -> None:
    site.pool()
    for name in ("template_max", "template_idle_s"):
        assert f"settings.{name}" in site.put("/pools/gpus/groups/g", {"settings": {name: 5}}).malformed()


def test_to_declare_an_instance_takes_the_permission_to_create_policies(site: Site) -> None:
    site.pool()
    site.policy("user-*")
    site.submit("user-ana", gpu=1)
    operator = site.token("operator")
    assert site.put("/pools/gpus/policies/user-*", {"limit": {"gpu": 2}}, token=operator).status == 200
    site.put("/pools/gpus/policies/user-ana", {}, token=operator).refused(403, "not_permitted")


def test_a_dry_run_knows_templates_and_their_instances(everywhere: Site) -> None:
    everywhere.pool(gpu=4)
    everywhere.policy("user-*", limit={"gpu": 1}, settings={"template_max": 2})
    everywhere.submit("user-ana", gpu=1)
    outcomes = {}
    for component in ("user-ana", "user-bob", "robot"):
        outcomes[component] = everywhere.post("/dry-run", {"request": an_ask(component, gpu=1)}).body["outcome"]
    assert outcomes == {"user-ana": "queued", "user-bob": "allocated", "robot": "rejected"}
    assert [row["component"] for row in everywhere.get("/pools/gpus/policies").body["items"]] == ["user-*", "user-ana"]


def test_explain_names_the_limit_of_the_tenant(everywhere: Site) -> None:
    everywhere.pool(gpu=4)
    everywhere.policy("user-*", limit={"gpu": 1})
    everywhere.submit("user-ana", gpu=1)
    waiter = everywhere.submit("user-ana", gpu=1)
    (pool,) = everywhere.get(f"/requests/{waiter['id']}/explain").body["pools"]
    assert pool["verdict"] == "over_limit"
    assert "orchestrator/user-ana" in str(pool)
