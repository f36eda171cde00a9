"""Explanations over HTTP, and the parts of them that a token may see."""

from __future__ import annotations

import json

import pytest

from app.service.estimates import Estimator
from app.store.queue_status import QueueStatusStore
from tests.support.in_process_api import Site, an_ask


@pytest.fixture
def queue(site: Site) -> dict[str, str]:
    """Create two requests of `team` that hold 8 gpu, and one of `other` that waits for two."""
    site.pool()
    site.policy()
    site.policy("other")
    first, second = site.submit(gpu=5, walltime_s=60), site.submit(gpu=3)
    return {"one": first["id"], "two": second["id"], "waits": site.submit("other", gpu=2)["id"]}


def test_the_whole_answer(site: Site, queue: dict[str, str]) -> None:
    body = site.get(f"/requests/{queue['waits']}/explain").body
    (pool,) = body.pop("pools")
    assert body == {
        "request": queue["waits"],
        "status": "queued",
        "sentence": f"Request {queue['waits']} waits in gpus as number 1 of 1: it needs 2 gpu, and 0 of 8 are free.",
    }
    estimate = pool.pop("estimated_start")
    assert estimate["earliest"] <= estimate["likely"]
    assert estimate["basis"] == "1 promised walltime"
    assert pool == {
        "no_estimate": None,
        "pool": "gpus",
        "position": 1,
        "ahead": 0,
        "waiting": 1,
        "verdict": "no_capacity",
        "keys": {"gpu": {"needed": 2, "free": 0, "held_for_others": 0, "limit": None, "reserved": 0}},
        "blocking_account": {
            "account": "pool",
            "key": "gpu",
            "limit": 8,
            "reserved": 0,
            "used": 8,
            "needed": 2,
            "lacking": 2,
        },
        "holders": [
            {
                "component": "team",
                "component_type": "orchestrator",
                "used": {"gpu": 8},
                "in_share": {"gpu": 0},
                "borrowed": {"gpu": 8},
                "next_end": "2023-11-14T22:14:20.000Z",
            }
        ],
        "more_holders": 0,
        "preemption": {
            "considered": True,
            "code": "not_enough",
            "reason": "it would not fit even if all allocations that it may preempt left",
            "candidates": [
                {
                    "request": queue[name],
                    "component": "team",
                    "component_type": "orchestrator",
                    "rule": None,
                    "why_not": "reclaim: the waiter does not fit into an unused share of its own; "
                    "priority: its rank is not lower; own: it is of another policy",
                }
                for name in ("two", "one")
            ],
            "more": 0,
            "leaving": [],
        },
        "would_start_if": "2 gpu come free in gpus",
    }


def test_where_there_is_no_estimate_it_says_why(site: Site) -> None:
    site.pool(gpu=1)
    site.policy()
    site.submit(gpu=1)
    waits = site.submit(gpu=1)["id"]
    (pool,) = site.get(f"/requests/{waits}/explain").body["pools"]
    assert pool["estimated_start"] is None
    assert pool["no_estimate"] == "no run times are known for the allocations that it waits for"
    (tried,) = site.post("/dry-run", {"request": an_ask(gpu=1)}).body["verdicts"]
    assert (tried["estimated_start"], tried["no_estimate"]) == (None, pool["no_estimate"])


def test_an_explanation_hides_components_that_the_token_may_not_see(site: Site, queue: dict[str, str]) -> None:
    secret = site.token("requester", "other", workspaces=["default"])
    body = site.get(f"/requests/{queue['waits']}/explain", token=secret).body["pools"][0]["preemption"]
    assert (body["candidates"], body["more"]) == ([], 2)
    site.get(f"/requests/{queue['one']}/explain", token=secret).refused(403, "other_component")
    site.get("/requests/" + "0" * 20 + "/explain", token=secret).refused(404, "no_such_request")


def test_a_token_for_some_components_learns_no_ids_of_others(site: Site) -> None:
    site.pool(gpu=4, settings={"queueing": "strict"})
    for name in ("mine", "secret"):
        site.policy(name)
    site.submit("secret", gpu=3)
    first, mine = site.submit("secret", gpu=2)["id"], site.submit("mine", gpu=1)["id"]
    secret = site.token("requester", "mine", workspaces=["default"])
    body = site.get(f"/requests/{mine}/explain", token=secret).body
    assert first not in json.dumps(body)
    assert "the queue is strict and another request is before it" in body["sentence"]
    assert body["pools"][0]["would_start_if"].startswith("another request, the first in the line, is granted")
    everything = site.get(f"/requests/{mine}/explain", token=site.token("admin")).body
    assert f"request {first} is before it" in everything["sentence"]


def test_no_explanation_is_computed_for_a_forbidden_request(
    site: Site, queue: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def worked_out(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(QueueStatusStore, "list_statuses", worked_out)
    monkeypatch.setattr(Estimator, "get", worked_out)
    secret = site.token("requester", "other", workspaces=["default"])
    for name in ("explain", "estimate"):
        site.get(f"/requests/{queue['one']}/{name}", token=secret).refused(403, "other_component")


def test_an_estimate_is_that_of_the_explanation_and_costs_no_look_at_the_rules(
    site: Site, queue: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (explained,) = site.get(f"/requests/{queue['waits']}/explain").body["pools"]
    start = {"pool": "gpus", "estimated_start": explained["estimated_start"], "no_estimate": None}
    with_reason = start | {"verdict": "no_capacity", "sentence": "it needs 2 gpu, and 0 of 8 are free"}
    assert site.get(f"/requests/{queue['waits']}/estimate", reasons="true").body["pools"] == [with_reason]
    monkeypatch.setattr(QueueStatusStore, "list_statuses", None)
    body = site.get(f"/requests/{queue['waits']}/estimate").body
    pools = [start | {"verdict": None, "sentence": None}]
    assert body == {"request": queue["waits"], "status": "queued", "pools": pools}
    assert explained["estimated_start"]["basis"] == "1 promised walltime"
    assert site.get(f"/requests/{queue['one']}/estimate").body["pools"] == []
    site.get("/requests/" + "0" * 20 + "/estimate").refused(404, "no_such_request")
