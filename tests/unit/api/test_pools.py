"""Pools, policies, groups and the workspace, each answer in full and each refusal with its code and numbers."""

from __future__ import annotations

from typing import Any

import pytest

from app.api.schemas.response_model import time_of
from app.domain.specs import WorkspaceSettings
from app.domain.workspace_limits import WORKSPACE_LIMITS
from tests.support.in_process_api import FRESH_POOL, Site, an_ask

DEFAULTS = WorkspaceSettings().model_dump()
GPUS = {"name": "gpus", "capacity": {"gpu": 8}, "used": {"gpu": 0}, "free": {"gpu": 8}, **FRESH_POOL}
POLICY = {
    "pool": "gpus",
    "reserved": {},
    "limit": {},
    "weight": 1,
    "used": {"gpu": 0},
    "used_fixed": {"gpu": 0},
    "borrowed": {},
    "settings": {},
    "component": "team",
    "component_type": "orchestrator",
    "priority": 0,
    "group": None,
    "profile": "batch",
    "queued": 0,
    "template": None,
    "policies": None,
}
GROUP = {key: POLICY[key] for key in ("pool", "reserved", "limit", "weight", "used", "used_fixed", "borrowed", "settings")} | {
    "name": "lab",
    "parent": None,
    "mode": "fair_share",
}
OWN = {
    "over_limit": "keep",
    "over_limit_after_s": 0,
    "fair_share_tolerance": 0.000001,
    "starvation_timeout_s": 60,
    "aggressive_starvation": False,
    "aggressive_starvation_timeout_s": 90,
    "allow_aggressive_preemption": True,
    "aggressive_preemption_threshold": 0,
    "preemption_threshold": 1.5,
    "non_preemptible_usage_threshold": {"gpu": 2},
}
"""Every setting of its own that a policy or group may have."""


# ---- pools

NOT_OVER: dict[str, Any] = {"over_limit": []}
"""The additional field of the answer to a change: nothing is used beyond a limit."""


def test_a_pool_is_made_shown_and_deleted(everywhere: Site) -> None:
    made = everywhere.post("/pools", {"name": "gpus", "description": "the rack", "capacity": {"gpu": 8}})
    assert (made.status, made.body) == (201, GPUS | {"description": "the rack"})
    shown = everywhere.get("/pools/gpus")
    assert (shown.status, shown.body) == (200, made.body)
    listed = everywhere.get("/pools")
    assert (listed.status, listed.body) == (200, {"items": [made.body], "next_cursor": None})
    deleted = everywhere.delete("/pools/gpus")
    assert (deleted.status, deleted.body) == (204, "")
    assert everywhere.get("/pools/gpus").refused(404, "no_such_pool")["detail"] == "there is no pool gpus"


def test_a_pool_in_use_shows_its_holders(everywhere: Site) -> None:
    everywhere.pool()
    everywhere.policy(reserved={"gpu": 2}, limit={"gpu": 6})
    everywhere.submit(gpu=5)
    everywhere.submit(gpu=2)
    expected = {"used": {"gpu": 5}, "free": {"gpu": 3}, "borrowed": {"gpu": 3}, "queue_length": 1, "active_count": 1}
    assert everywhere.get("/pools/gpus").body == GPUS | expected
    used = {"reserved": {"gpu": 2}, "limit": {"gpu": 6}, "used": {"gpu": 5}, "borrowed": {"gpu": 3}, "queued": 1}
    assert everywhere.get("/pools/gpus/policies/team").body == POLICY | used


def test_a_change_is_merged(site: Site) -> None:
    site.pool(gpu=8, cpu=4, settings={"patience_s": 10})
    site.patch("/pools/gpus", {"description": "old"})
    changed = site.patch("/pools/gpus", {"capacity": {"gpu": 16, "cpu": 0, "tpu": 2}, "settings": {"queueing": "strict"}})
    assert changed.status == 200
    assert changed.body == site.get("/pools/gpus").body | NOT_OVER
    assert changed.body["description"] == "old"
    assert changed.body["capacity"] == {"gpu": 16, "tpu": 2}
    assert changed.body["settings"] == FRESH_POOL["settings"] | {"patience_s": 10, "queueing": "strict"}
    assert site.patch("/pools/gpus", {"settings": {"patience_s": None}}).body["settings"]["patience_s"] is None
    same = site.get("/pools/gpus").body | NOT_OVER
    assert site.patch("/pools/gpus", {}).body == same
    assert site.patch("/pools/gpus", {"description": None}).body == same


def test_every_setting_is_kept_as_it_was_given(everywhere: Site) -> None:
    value = {
        "discipline": "classes",
        "order": "priority_first",
        "queueing": "strict",
        "patience_s": None,
        "grace_s": 0,
        "checkpoint_timeout_s": 1,
        "max_deferral_s": 0,
        "requeue_failed_checkpoint": False,
        "near_completion_s": 0,
        "min_runtime_s": 60,
        "max_victims": 0,
        "max_preemptions_per_minute": 6,
        "backoff_s": 5,
        "cost_key": "tpu",
        "value_per_class": 1,
        "over_limit": "evict",
        "over_limit_after_s": 0,
        "fair_share_tolerance": 0.000001,
        "starvation_timeout_s": 1,
        "aggressive_starvation": True,
        "aggressive_starvation_timeout_s": 2,
        "allow_aggressive_preemption": False,
        "aggressive_preemption_threshold": 0,
        "preemption_threshold": 2.5,
        "non_preemptible_usage_threshold": {"gpu": 2},
        "template_max": 3,
        "template_idle_s": 0,
    }
    assert value.keys() == FRESH_POOL["settings"].keys()
    assert everywhere.pool(settings=value)["settings"] == value
    assert everywhere.pool("other")["settings"] == FRESH_POOL["settings"]
    assert everywhere.patch("/pools/other", {"settings": value}).body["settings"] == value
    assert everywhere.patch("/pools/gpus", {"settings": FRESH_POOL["settings"]}).body["settings"] == FRESH_POOL["settings"]
    assert everywhere.get("/declaration").body["pools"][1]["settings"] == value


def test_a_pool_that_grows_has_granted_when_it_answers(site: Site) -> None:
    site.pool(gpu=1)
    site.policy()
    site.submit()
    waits = site.submit()
    assert waits["position"] == {"gpus": 1}
    assert site.patch("/pools/gpus", {"capacity": {"gpu": 2}}).body["used"] == {"gpu": 2}
    assert site.get(f"/requests/{waits['id']}").body["status"] == "allocated"


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ({}, {"name": "is required", "capacity": "is required"}),
        ({"name": "a b", "capacity": {}}, {"name": "must be 1 to 63 of A-Z a-z 0-9 _ . - and begin with a letter or digit",
                                           "capacity": "must have at least 1 entry"}),
        ({"name": "p", "capacity": {"gpu": 0}}, {"capacity.gpu": "must be at least 1"}),
        ({"name": "p", "capacity": {"gpu": 1.5}}, {"capacity.gpu": "must be a whole number"}),
        ({"name": "p", "capacity": {"gpu": "8"}}, {"capacity.gpu": "must be a whole number"}),
        ({"name": "p", "capacity": {"gpu": 2**53}}, {"capacity.gpu": f"must be at most {2**53 - 1}"}),
        ({"name": "p", "capacity": {"GPU": 1}}, {"capacity.GPU": "must be 1 to 63 of a-z 0-9 _ . - and begin with a letter"}),
        ({"name": "p", "capacity": {"gpu": 1}, "colour": "red"}, {"colour": "is not a field here"}),
        ({"name": "p", "capacity": {"gpu": 1}, "settings": {"discipline": "fair"}},
         {"settings.discipline": "must be 'reserved', 'classes' or 'fair_share'"}),
        ([], {"": "must be an object"}),
    ],
)  # fmt: skip
def test_a_malformed_pool_is_told_every_fault(site: Site, body: Any, faults: dict[str, str]) -> None:
    assert site.post("/pools", body).malformed() == faults
    assert site.get("/pools").items == []


def test_a_pool_there_is_cannot_be_made(site: Site) -> None:
    site.pool()
    detail = site.post("/pools", {"name": "gpus", "capacity": {"gpu": 1}}).refused(409, "pool_exists")["detail"]
    assert "gpus" in detail
    assert site.get("/pools/gpus").body == GPUS


def test_a_repeated_creation_is_done_once(site: Site) -> None:
    body, key = {"name": "gpus", "capacity": {"gpu": 8}}, {"Idempotency-Key": "k"}
    assert site.post("/pools", body, headers=key).status == 201
    assert site.post("/pools", body, headers=key).status == 201
    site.post("/pools", body, headers={"Idempotency-Key": "another"}).refused(409, "pool_exists")
    wrong = site.post("/pools", body, headers={"Idempotency-Key": "k" * 256}).malformed()
    assert wrong == {"Idempotency-Key": "must be 1 to 255 printable ASCII characters"}


def test_what_is_in_use_cannot_be_deleted_and_says_by_how_many(site: Site) -> None:
    site.pool()
    site.policy()
    allocation, _ = site.submit(gpu=8), site.submit()
    pool = site.delete("/pools/gpus").refused(409, "in_use")["detail"]
    policy = site.delete("/pools/gpus/policies/team").refused(409, "in_use")["detail"]
    assert pool == "pool gpus is in use: 1 queued, 1 active"
    assert policy == "policy orchestrator/team is in use: 1 queued, 1 active"
    assert site.get(f"/requests/{allocation['id']}").body["status"] == "allocated"


def test_shrinking_names_the_policy_the_key_and_the_numbers(site: Site) -> None:
    site.pool()
    site.policy(limit={"gpu": 6})
    detail = site.patch("/pools/gpus", {"capacity": {"gpu": 5}}).refused(409, "breaks_policy")["detail"]
    assert detail == "policy orchestrator/team reserves or is limited to 6 of gpu; the pool would have 5"
    site.put("/pools/gpus/policies/team", {"reserved": {"gpu": 4}})
    site.policy("other", reserved={"gpu": 3})
    detail = site.patch("/pools/gpus", {"capacity": {"gpu": 6}}).refused(409, "breaks_promises")["detail"]
    assert detail == "7 of gpu are reserved in all; the pool would have 6"
    site.pool("spare")
    site.patch("/pools/spare", {"capacity": {"gpu": 0}}).refused(422, "no_capacity_left")
    assert site.get("/pools/gpus").body["capacity"] == {"gpu": 8}


def test_a_key_that_is_held_stays(site: Site) -> None:
    site.pool(gpu=8, seat=2)
    site.policy()
    site.submit(seat=2)
    detail = site.patch("/pools/gpus", {"capacity": {"seat": 0}}).refused(409, "key_in_use")["detail"]
    assert detail == "2 of seat are held; a key can be removed when none is"


@pytest.mark.parametrize("method", ["get", "patch", "delete"])
def test_a_pool_that_is_not_there(site: Site, method: str) -> None:
    body: dict[str, Any] = {"body": {}} if method == "patch" else {}
    getattr(site, method)("/pools/none", **body).refused(404, "no_such_pool")


# ---- policies


def test_a_policy_is_new_then_replaced_then_gone(everywhere: Site) -> None:
    everywhere.pool()
    path = "/pools/gpus/policies/team"
    full = {"priority": 3, "reserved": {"gpu": 2}, "limit": {"gpu": 4}, "weight": 5, "profile": "service", "settings": OWN}
    new = everywhere.put(path, full)
    assert (new.status, new.body) == (201, POLICY | full | NOT_OVER)
    assert everywhere.get(path).body | NOT_OVER == new.body
    replaced = everywhere.put(path, {"reserved": {"gpu": 1}})
    assert (replaced.status, replaced.body) == (200, POLICY | {"reserved": {"gpu": 1}} | NOT_OVER)
    assert everywhere.delete(path).status == 204
    detail = everywhere.get(path).refused(404, "no_such_policy")["detail"]
    assert detail == "there is no policy orchestrator/team in pool gpus"
    everywhere.delete(path).refused(404, "no_such_policy")


def test_components_of_another_type_are_others(site: Site) -> None:
    site.pool()
    site.policy()
    other = site.put("/pools/gpus/policies/team", {"priority": 9}, component_type="step_operator")
    assert (other.status, other.body) == (201, POLICY | {"component_type": "step_operator", "priority": 9} | NOT_OVER)
    assert [row["component_type"] for row in site.get("/pools/gpus/policies").items] == ["step_operator", "orchestrator"]
    assert site.get("/pools/gpus/policies/team").body["priority"] == 0
    assert site.delete("/pools/gpus/policies/team", component_type="step_operator").status == 204
    assert [row["component_type"] for row in site.get("/pools/gpus/policies").items] == ["orchestrator"]


def test_a_new_policy_enqueues_and_grants_what_waits_elsewhere(site: Site) -> None:
    site.pool("small", gpu=1)
    site.pool("large", gpu=4)
    site.policy(pool="small")
    site.submit()
    waits = site.submit()
    assert site.policy(pool="large")["used"] == {"gpu": 1}
    assert site.get(f"/requests/{waits['id']}").body["pool"] == "large"


@pytest.mark.parametrize(
    ("body", "code", "sentence"),
    [
        ({"reserved": {"gpu": 7}}, "overpromised", "the reserved shares in the pool add up to 9 of gpu; it has 8 to give"),
        ({"limit": {"gpu": 9}}, "limit_beyond_capacity", "policy orchestrator/team limits gpu to 9; the pool has 8"),
        (
            {"reserved": {"gpu": 3}, "limit": {"gpu": 2}},
            "reserved_beyond_limit",
            "policy orchestrator/team reserves 3 of gpu, more than its limit of 2",
        ),
        (
            {"reserved": {"tpu": 1}},
            "unknown_key",
            "the pool has no tpu; a policy or a group can only have keys of its pool",
        ),
        (
            {"settings": {"non_preemptible_usage_threshold": {"tpu": 1}}},
            "unknown_threshold_key",
            "non_preemptible_usage_threshold of policy orchestrator/team has 1 of tpu; the pool has no tpu",
        ),
    ],
)
def test_a_policy_against_the_rules_names_the_numbers(site: Site, body: Any, code: str, sentence: str) -> None:
    site.pool()
    site.policy("other", reserved={"gpu": 2})
    refused = site.put("/pools/gpus/policies/team", body).refused(422, code)
    assert refused["detail"] == sentence
    assert [row["component"] for row in site.get("/pools/gpus/policies").items] == ["other"]


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ({"priority": 10_000}, {"priority": "must be at most 9999"}),
        ({"priority": -1}, {"priority": "must be at least 0"}),
        ({"settings": {"fair_share_tolerance": True}}, {"settings.fair_share_tolerance": "must be a number"}),
        ({"settings": {"preemption_threshold": 1e-7}}, {"settings.preemption_threshold": "must have at most 6 decimal places"}),
        ({"settings": {"discipline": "classes"}}, {"settings.discipline": "is not a field here"}),
        ({"weight": 0}, {"weight": "must be at least 1"}),
        ({"reserved": {"gpu": -1}}, {"reserved.gpu": "must be at least 0"}),
        ({"used": {"gpu": 1}}, {"used": "is not a field here"}),
        ({"profile": "idle"}, {"profile": "must be 'batch', 'training', 'service', 'sensitive' or 'interactive'"}),
        ({"group": "a/b"}, {"group": "must be 1 to 63 of A-Z a-z 0-9 _ . - and begin with a letter or digit"}),
    ],
)
def test_a_malformed_policy(site: Site, body: Any, faults: dict[str, str]) -> None:
    site.pool()
    assert site.put("/pools/gpus/policies/team", body).malformed() == faults


def test_policies_below_what_is_not_there(site: Site) -> None:
    site.get("/pools/none/policies/team").refused(404, "no_such_pool")
    detail = site.delete("/pools/none/policies/team").refused(404, "no_such_policy")["detail"]
    assert detail == "there is no policy orchestrator/team in pool none"
    site.put("/pools/none/policies/team", {}).refused(404, "no_such_pool")
    site.get("/pools/none/policies").refused(404, "no_such_pool")
    site.pool()
    site.put("/pools/gpus/policies/team", {"group": "none"}).refused(404, "no_such_group")


def test_the_policies_of_a_component_the_most_preferred_first(everywhere: Site) -> None:
    for pool, priority in (("a", 1), ("b", 5), ("c", 3)):
        everywhere.pool(pool)
        everywhere.policy(pool=pool, priority=priority)
    everywhere.policy("other", pool="a")
    pages = everywhere.every("/components/team/policies", 2)
    assert [[row["pool"] for row in page] for page in pages] == [["b", "c"], ["a"]]
    assert pages[0][0] == POLICY | {"pool": "b", "priority": 5}
    assert everywhere.get("/components/team/policies", component_type="step_operator").items == []
    assert everywhere.get("/components/unmanaged/policies").body == {"items": [], "next_cursor": None}


# ---- groups


def test_a_group_is_new_then_replaced_then_gone(everywhere: Site) -> None:
    everywhere.pool()
    path = "/pools/gpus/groups/lab"
    full = {"reserved": {"gpu": 4}, "limit": {"gpu": 6}, "weight": 2, "mode": "fifo", "settings": OWN}
    new = everywhere.put(path, full)
    assert (new.status, new.body) == (201, GROUP | full | NOT_OVER)
    assert everywhere.get(path).body | NOT_OVER == new.body
    replaced = everywhere.put(path, {})
    assert (replaced.status, replaced.body) == (200, GROUP | NOT_OVER)
    assert everywhere.delete(path).status == 204
    assert everywhere.get(path).refused(404, "no_such_group")["detail"] == "there is no group lab in pool gpus"
    everywhere.delete(path).refused(404, "no_such_group")


def test_groups_are_nested_used_and_kept_while_they_have_children(site: Site) -> None:
    site.pool()
    site.put("/pools/gpus/groups/lab", {"reserved": {"gpu": 4}})
    site.put("/pools/gpus/groups/vision", {"parent": "lab", "reserved": {"gpu": 2}})
    site.policy(group="vision", reserved={"gpu": 1})
    site.submit(gpu=3)
    vision = site.get("/pools/gpus/groups/vision").body
    expected = {"parent": "lab", "reserved": {"gpu": 2}, "used": {"gpu": 3}, "borrowed": {"gpu": 1}}
    assert vision == GROUP | {"name": "vision"} | expected
    assert [row["name"] for page in site.every("/pools/gpus/groups", 1) for row in page] == ["lab", "vision"]
    in_use = site.delete("/pools/gpus/groups/lab").refused(409, "in_use")["detail"]
    assert in_use == "group lab is the parent of group vision"
    site.put("/pools/gpus/groups/vision", {"reserved": {"gpu": 2}}).refused(409, "moves_in_use")
    site.put("/pools/gpus/groups/lab", {"parent": "vision"}).refused(422, "circle")
    detail = site.put("/pools/gpus/groups/lab", {"reserved": {"gpu": 1}}).refused(422, "reserved_below_children")["detail"]
    assert detail == "group lab would reserve 1 of gpu; its children reserve 2"


def test_groups_below_what_is_not_there(site: Site) -> None:
    site.get("/pools/none/groups/lab").refused(404, "no_such_pool")
    assert site.delete("/pools/none/groups/lab").refused(404, "no_such_group")["detail"] == "there is no group lab in pool none"
    site.put("/pools/none/groups/lab", {}).refused(404, "no_such_pool")
    site.get("/pools/none/groups").refused(404, "no_such_pool")
    site.pool()
    site.put("/pools/gpus/groups/lab", {"parent": "none"}).refused(404, "no_such_group")


# ---- the workspace


def test_the_settings_of_the_workspace(everywhere: Site) -> None:
    before = everywhere.get("/workspace").body
    assert before == {"name": "default", "settings": DEFAULTS, "use": dict.fromkeys(WORKSPACE_LIMITS, 0), "component_use": {}}
    assert everywhere.submit(queue_ttl_s=None)["status"] == "rejected"
    changed = everywhere.patch("/workspace", {"unmanaged": "allow"})
    assert (changed.status, changed.body) == (
        200, {**everywhere.get("/workspace").body, "settings": {**DEFAULTS, "unmanaged": "allow"}},
    )  # fmt: skip
    assert everywhere.patch("/workspace", {}).body == changed.body
    assert everywhere.submit()["status"] == "allocated"
    assert everywhere.patch("/workspace", {"unmanaged": "maybe"}).malformed() == {"unmanaged": "must be 'reject' or 'allow'"}
    assert everywhere.get("/workspace", workspace="other").body["settings"] == DEFAULTS


def test_limits_of_the_workspace_and_their_use(everywhere: Site) -> None:
    everywhere.pool(gpu=1), everywhere.policy()
    everywhere.patch(
        "/workspace", {"max_pools": 1, "max_ended": None, "component_limits": {"orchestrator/team": {"max_waiting": 1}}}
    )
    everywhere.submit(gpu=1), everywhere.submit(gpu=1)
    body = everywhere.get("/workspace").body
    assert (body["settings"]["max_pools"], body["settings"]["max_ended"]) == (1, None)
    assert body["settings"]["component_limits"] == {"orchestrator/team": {"max_waiting": 1, "max_shapes": None}}
    assert body["component_use"] == {"orchestrator/team": {"max_waiting": 1, "max_shapes": 1}}
    assert (body["use"]["max_pools"], body["use"]["max_waiting"], body["use"]["max_running"]) == (1, 1, 1)
    problem = everywhere.post("/requests", an_ask(gpu=1)).refused(429, "too_many_waiting")
    assert problem["detail"] == "the component orchestrator/team has 1 waiting requests; max_waiting is 1"
    full = everywhere.post("/pools", {"name": "more", "capacity": {"gpu": 1}}).refused(429, "too_many_pools")
    assert (full["limit_of"], full["limit"], full["present"]) == ("workspace", 1, 1)


def test_workspaces_know_nothing_of_each_other(everywhere: Site) -> None:
    everywhere.pool()
    everywhere.policy()
    allocation = everywhere.submit()
    before = everywhere.state()
    elsewhere = {"workspace": "elsewhere"}
    for path in ("/pools", "/components/team/policies"):
        assert everywhere.get(path, **elsewhere).body == {"items": [], "next_cursor": None}
    assert everywhere.get("/requests", **elsewhere).body == {"items": [], "next_cursor": None, "counts": None}
    assert everywhere.get("/declaration", **elsewhere).body == {}
    listed = everywhere.get("/events", headers={"Accept": "application/json"}, **elsewhere)
    assert listed.body == {"items": [], "next_cursor": None}
    everywhere.get("/pools/gpus", **elsewhere).refused(404, "no_such_pool")
    everywhere.get(f"/requests/{allocation['id']}", **elsewhere).refused(404, "no_such_request")
    everywhere.post(f"/requests/{allocation['id']}/release", {"fence": allocation["fence"]}, **elsewhere).refused(
        404, "no_such_request"
    )
    everywhere.delete(f"/requests/{allocation['id']}", **elsewhere).refused(404, "no_such_request")
    everywhere.delete("/pools/gpus", **elsewhere).refused(404, "no_such_pool")
    assert everywhere.state() == before
    assert everywhere.get("/pools", workspace="a/b").malformed().keys() == {"Poolkeeper-Workspace"}


def test_history_tells_each_time_what_the_pool_and_its_policies_used(everywhere: Site) -> None:
    everywhere.pool(gpu=8)
    everywhere.policy(reserved={"gpu": 2})
    empty = everywhere.get("/pools/gpus/history").body
    assert empty == {"times": [], "capacity": {}, "series": {"pool": {}}, "peaks": {"pool": {}}}
    item = everywhere.submit(gpu=7)
    everywhere.post(f"/requests/{item['id']}/release", {"fence": item["fence"]})
    everywhere.submit(gpu=5)
    everywhere.services.usage_history.record("default")
    body = everywhere.get("/pools/gpus/history").body
    (position,) = body.pop("times")
    assert position == time_of(everywhere.clock.now_ms())
    used, peak = {"gpu": [5]}, {"gpu": [7]}
    assert body == {
        "capacity": {"gpu": [8]},
        "series": {"pool": used, "orchestrator/team": used},
        "peaks": {"pool": peak, "orchestrator/team": peak},
    }
    everywhere.get("/pools/nowhere/history").refused(404, "no_such_pool")
