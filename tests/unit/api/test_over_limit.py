"""Use beyond a limit over HTTP: of a plan, a dry run and a changed pool, and how much of it a token is told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.in_process_api import Site


@pytest.fixture
def busy(site: Site) -> list[str]:
    """Create a pool of 6 gpu of which `red` uses 4 and `blue` 2; return the ids of their requests."""
    site.pool(gpu=6)
    site.policy("red")
    site.policy("blue")
    labels = {"user": "ana", "host": "gpu-01"}
    return [site.submit("red", gpu=4, labels=labels)["id"], site.submit("blue", gpu=2)["id"]]


def shrunk(site: Site, units: int, **more: Any) -> dict[str, Any]:
    """Return the declaration of the workspace with this many gpu."""
    (pool,) = site.get("/declaration").body["pools"]
    return {"pools": [{**pool, "capacity": {"gpu": units}, **more}]}


def test_plan_dry_run_apply_and_change_say_the_same(site: Site, busy: list[str]) -> None:
    red, blue = busy
    evict = {"settings": {"over_limit": "evict", "over_limit_after_s": 60}}
    wanted = shrunk(site, 3, **evict)
    (use,) = site.post("/declaration/plan", wanted).body["over_limit"]
    assert use == {
        "pool": "gpus", "kind": "pool", "name": "gpus", "key": "gpu", "used": 6, "limit": 3, "beyond": 3,
        "over_limit": "evict", "after_s": 60, "victims": [red], "victim_count": 1, "staying": 0,
        "holders": [
            {"component": "red", "component_type": "orchestrator", "units": 4, "requests": [red], "owners": ["ana@gpu-01"]},
            {"component": "blue", "component_type": "orchestrator", "units": 2, "requests": [blue], "owners": []},
        ],
        "sentence": "pool gpus: 6 gpu in use, 3 more than its capacity of 3: red 4 (ana@gpu-01), blue 2. "
        "With over_limit=evict, 1 request is preempted after 60 s.",
    }  # fmt: skip
    tried = site.post("/dry-run", wanted).body
    assert (tried["outcome"], tried["over_limit"], tried["plan"]["over_limit"]) == ("changes", [use], [use])
    alone = {"pool": {"name": "gpus", "capacity": {"gpu": 3}, **evict}}
    assert site.post("/dry-run", alone).body["over_limit"] == [use]
    assert site.put("/declaration", wanted).body["over_limit"] == [use]
    assert site.patch("/pools/gpus", {"capacity": {"gpu": 3}}).body["over_limit"] == [use]
    assert site.put("/declaration", wanted).body["over_limit"] == []
    assert site.patch("/pools/gpus", {"capacity": {"gpu": 6}}).body["over_limit"] == []


def test_a_limit_of_a_policy_below_its_use_is_shown(site: Site, busy: list[str]) -> None:
    body = {"policy": {"pool": "gpus", "component": "red", "limit": {"gpu": 1}}}
    (use,) = site.post("/dry-run", body).body["over_limit"]
    assert (use["kind"], use["name"], use["beyond"], use["over_limit"]) == ("policy", "orchestrator/red", 3, "keep")
    group = {"group": {"pool": "gpus", "name": "lab", "limit": {"gpu": 1}}}
    assert site.post("/dry-run", group).body["over_limit"] == []


def test_a_changed_policy_or_group_says_what_of_it_is_over(site: Site, busy: list[str]) -> None:
    site.put("/pools/gpus/groups/lab", {})
    site.policy("green", group="lab")
    site.patch("/pools/gpus", {"capacity": {"gpu": 8}})
    site.submit("green", gpu=2)
    changed = site.put("/pools/gpus/policies/red", {"limit": {"gpu": 1}}).body
    assert [(use["kind"], use["name"], use["beyond"]) for use in changed["over_limit"]] == [("policy", "orchestrator/red", 3)]
    group = site.put("/pools/gpus/groups/lab", {"limit": {"gpu": 1}}).body
    assert [(use["kind"], use["name"], use["beyond"]) for use in group["over_limit"]] == [("group", "lab", 1)]
    assert site.put("/pools/gpus/policies/blue", {"limit": {"gpu": 2}}).body["over_limit"] == []


def test_the_use_of_instances_is_shown(site: Site) -> None:
    site.pool(gpu=8)
    site.policy("intern-*", limit={"gpu": 4})
    for name, units in (("intern-ana", 3), ("intern-bob", 1)):
        site.submit(name, gpu=units)
    (pool,) = site.get("/declaration").body["pools"]
    lowered = {"pools": [{**pool, "policies": [{"component": "intern-*", "limit": {"gpu": 1}}]}]}
    planned = site.post("/declaration/plan", lowered).body["over_limit"]
    assert [(use["name"], use["used"], use["limit"]) for use in planned] == [("orchestrator/intern-ana", 3, 1)]
    assert site.put("/pools/gpus/policies/intern-*", {"limit": {"gpu": 1}}).body["over_limit"] == planned


def test_a_token_learns_no_owner_and_no_request_of_others(site: Site, busy: list[str]) -> None:
    wanted = shrunk(site, 3, settings={"over_limit": "evict"})
    secret = site.token("requester", "blue", workspaces=["default"])
    (use,) = site.post("/declaration/plan", wanted, token=secret).body["over_limit"]
    assert [(holder["units"], holder["requests"], holder["owners"]) for holder in use["holders"]] == [
        (4, [], []),
        (2, [busy[1]], []),
    ]
    assert (use["victims"], use["victim_count"]) == ([], 1)
    assert "ana" not in use["sentence"]
