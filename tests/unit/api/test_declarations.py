"""The workspace as one declaration: planned, applied all or not at all, and told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.in_process_api import FRESH_POOL, Site
from tests.support.paths import ROOT

WANTED: dict[str, Any] = {
    "pools": [
        {
            "name": "gpus",
            "description": "the rack",
            "capacity": {"gpu": 8},
            "settings": {"queueing": "strict", "fair_share_tolerance": 0.000001, "non_preemptible_usage_threshold": {"gpu": 1}},
            "groups": [
                {"name": "lab", "reserved": {"gpu": 4}, "mode": "fifo", "settings": {"aggressive_starvation": False}},
                {"name": "vision", "parent": "lab", "reserved": {"gpu": 2}, "limit": {"gpu": 6}},
            ],
            "policies": [
                {"component": "team", "priority": 10, "reserved": {"gpu": 2}, "group": "vision"},
                {
                    "component": "team",
                    "component_type": "step_operator",
                    "weight": 2,
                    "settings": {"preemption_threshold": 0.5},
                },
            ],
        },
        {"name": "seats", "capacity": {"matlab": 3}},
    ]
}
CREATED = [
    ("create", "pool", "gpus", "gpus"),
    ("create", "group", "gpus", "lab"),
    ("create", "group", "gpus", "vision"),
    ("create", "policy", "gpus", "orchestrator/team"),
    ("create", "policy", "gpus", "step_operator/team"),
    ("create", "pool", "seats", "seats"),
]


def _changes(body: dict[str, Any]) -> list[tuple[str, ...]]:
    return [tuple(change[name] for name in ("action", "kind", "pool", "name")) for change in body["changes"]]


def test_it_is_planned_then_applied_then_the_same(everywhere: Site) -> None:
    assert everywhere.get("/declaration").body == {}
    planned = everywhere.post("/declaration/plan", WANTED)
    assert (planned.status, _changes(planned.body)) == (200, CREATED)
    assert planned.body["sentence"] == "6 to create, 0 to change, 0 to delete"
    assert everywhere.get("/pools").items == [], "a plan changes nothing"
    applied = everywhere.put("/declaration", WANTED)
    assert (applied.status, applied.body) == (200, planned.body)
    assert everywhere.get("/declaration").body == WANTED
    nothing = {"changes": [], "sentence": "nothing to change", "over_limit": []}
    assert everywhere.put("/declaration", WANTED).body == nothing
    assert everywhere.put("/declaration", everywhere.get("/declaration").body, prune="true").body == nothing


def test_what_was_declared_is_what_is_there(site: Site) -> None:
    site.put("/declaration", WANTED)
    pool = site.get("/pools/gpus").body
    assert (pool["description"], pool["capacity"]) == ("the rack", {"gpu": 8})
    assert pool["settings"] == FRESH_POOL["settings"] | WANTED["pools"][0]["settings"]
    lab = site.get("/pools/gpus/groups/lab").body
    assert (lab["mode"], lab["settings"]) == ("fifo", {"aggressive_starvation": False})
    assert site.get("/pools/gpus/groups/vision").body["limit"] == {"gpu": 6}
    policy = site.get("/pools/gpus/policies/team").body
    assert (policy["priority"], policy["reserved"], policy["group"]) == (10, {"gpu": 2}, "vision")


def test_a_change_is_told_in_lines(site: Site) -> None:
    site.put("/declaration", WANTED)
    changed = {
        "pools": [{**WANTED["pools"][0], "capacity": {"gpu": 6, "cpu": 2}, "policies": [], "settings": {"patience_s": 60}}]
    }
    planned = site.post("/declaration/plan", changed).body
    assert planned["sentence"] == "0 to create, 1 to change, 2 to delete"
    pool, first, second = planned["changes"]
    assert pool["lines"] == [
        "capacity cpu: none -> 2",
        "capacity gpu: 8 -> 6",
        "setting fair_share_tolerance: 0.000001 -> 0.8",
        "setting non_preemptible_usage_threshold: gpu=1 -> none",
        "setting patience_s: 300 -> 60",
        "setting queueing: strict -> best_effort",
    ]
    assert _changes({"changes": [first, second]}) == [
        ("delete", "policy", "gpus", "orchestrator/team"),
        ("delete", "policy", "gpus", "step_operator/team"),
    ]


def test_a_pool_that_is_not_listed_stays_unless_pruned(site: Site) -> None:
    site.put("/declaration", WANTED)
    item = {"pools": [WANTED["pools"][1]]}
    assert site.put("/declaration", item).body["changes"] == []
    planned = site.post("/declaration/plan", item, prune="true").body
    assert _changes(planned) == [("delete", "pool", "gpus", "gpus")]
    assert site.put("/declaration", item, prune="true").body == planned
    assert site.get("/declaration").body == item
    assert site.put("/declaration", {}, prune="false").body["changes"] == []
    assert site.put("/declaration", {}, prune="true").body["sentence"] == "0 to create, 0 to change, 1 to delete"


@pytest.mark.parametrize(
    ("pool", "status", "code"),
    [
        ({"name": "b", "capacity": {"gpu": 1}, "policies": [{"component": "x", "reserved": {"gpu": 2}}]}, 422, None),
        ({"name": "b", "capacity": {"gpu": 1}, "policies": [{"component": "x", "reserved": {"tpu": 1}}]}, 422, "unknown_key"),
        (
            {"name": "b", "capacity": {"gpu": 1}, "settings": {"non_preemptible_usage_threshold": {"tpu": 1}}},
            422,
            "unknown_threshold_key",
        ),
        ({"name": "b", "capacity": {"gpu": 1}, "policies": [{"component": "x", "group": "none"}]}, 422, "no_such_group"),
        ({"name": "held", "capacity": {"gpu": 8}}, 409, "in_use"),
        ({"name": "held", "capacity": {"cpu": 8}, "policies": [{"component": "team"}]}, 409, "key_in_use"),
    ],
)
def test_it_is_all_or_nothing(everywhere: Site, pool: dict[str, Any], status: int, code: str | None) -> None:
    everywhere.pool("held")
    everywhere.policy(pool="held")
    everywhere.submit()
    before = everywhere.get("/declaration").body
    expected = {"pools": [{"name": "a", "capacity": {"gpu": 1}}, pool]}
    refused = everywhere.put("/declaration", expected)
    refused.refused(status, code or refused.body["code"])
    assert pool["name"] in refused.body["detail"]
    assert everywhere.get("/declaration").body == before
    assert everywhere.get("/pools/held").body["used"] == {"gpu": 1}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"pools": [{"name": "a"}]}, "pools.0.capacity"),
        ({"pools": [{"name": "a", "capacity": {"gpu": 1}, "policies": [{"component": "x", "priority": -1}]}]},
         "pools.0.policies.0.priority"),
        ({"pools": [{"name": "a", "capacity": {"gpu": 1}}] * 2}, "pools"),
        ({"pools": [{"name": "a", "capacity": {"gpu": 1}, "groups": [{"name": "g"}] * 2}]}, "pools.0.groups"),
        ({"workspace": "x"}, "workspace"),
    ],
)  # fmt: skip
def test_a_malformed_declaration(site: Site, body: Any, field: str) -> None:
    for answer in (site.put("/declaration", body), site.post("/declaration/plan", body)):
        assert answer.malformed().keys() == {field}


def test_a_flag_that_is_none(site: Site) -> None:
    assert site.put("/declaration", {}, prune="perhaps").malformed() == {"prune": "must be true or false"}


@pytest.mark.parametrize("path", ["/declaration/plan", "/dry-run"])
def test_a_declaration_of_very_many_pools_is_refused_before_any_is_looked_at(site: Site, path: str) -> None:
    named: list[Any] = [{"name": f"p{number}", "capacity": {"gpu": 1}} for number in range(2001)]
    unnamed: list[Any] = [{}] * 40_000
    for pools in (named, unnamed):
        assert site.post(path, {"pools": pools}).malformed() == {"pools": "must have at most 2000 entries"}


def test_a_declaration_may_not_change_too_much_at_once(site: Site) -> None:
    pools = [{"name": f"p{number}", "capacity": {"gpu": 1}, "groups": [{"name": "g"}]} for number in range(1001)]
    detail = site.put("/declaration", {"pools": pools}).refused(422, "too_many_changes")["detail"]
    assert detail == "this changes 2002 pools, groups and policies; one call may change 2000"
    assert site.get("/pools").items == []


def test_a_broken_rule_names_its_field(site: Site) -> None:
    policies = [{"component": "c"}, {"component": "x/d", "limit": {"gpu": 3}}]
    pools = [{"name": "a", "capacity": {"gpu": 1}}, {"name": "b", "capacity": {"gpu": 2}, "policies": policies}]
    problem = site.post("/declaration/plan", {"pools": pools}).refused(422, "limit_beyond_capacity")
    sentence = "pool b: policy x/d limits gpu to 3; the pool has 2"
    assert problem["errors"] == [{"field": "pools.1.policies.1.limit.gpu", "reason": sentence}]
    assert problem["detail"] == sentence


def test_a_similar_field_is_suggested(site: Site) -> None:
    policies = [{"component": "c", "type": "x"}]
    pool = {"name": "a", "capcity": {"gpu": 1}, "settings": {"queuing": "strict"}, "policies": policies}
    assert site.post("/declaration/plan", {"pools": [pool]}).malformed() == {
        "pools.0.capacity": "is required",
        "pools.0.capcity": "is not a field here; did you mean capacity?",
        "pools.0.settings.queuing": "is not a field here; did you mean queueing?",
        "pools.0.policies.0.type": "is not a field here; did you mean component_type?",
    }


def test_the_schema_of_the_file_is_answered(site: Site) -> None:
    answer = site.get("/pools.schema.json")
    assert (answer.status, answer.kind) == (200, "application/schema+json")
    assert answer.body == json.loads((ROOT / "config" / "pools.schema.json").read_text("utf-8"))
