"""Dry runs over HTTP: their outcome, their lack of effect, and the permissions."""

from __future__ import annotations

from typing import Any

import pytest
from poolkeeper.http_client import LONGEST_RETRY_AFTER_S

from app.api.schemas.response_model import LAST_MS, time_of
from app.domain.dry_run import DRY_RUN_REASONS, DryRunUnavailable
from tests.support.fake_redis import FakeRedisProvider
from tests.support.in_process_api import Site, an_ask


@pytest.fixture
def busy(site: Site) -> dict[str, str]:
    """Create a pool of 4 gpu that `low` holds, with no grace."""
    site.pool(gpu=4, settings={"grace_s": 0})
    site.policy("low", priority=1)
    site.policy("high", priority=9)
    return {name: site.submit("low", gpu=2)["id"] for name in ("first", "second")}


def test_what_a_submit_would_come_to(site: Site, busy: dict[str, str]) -> None:
    before = site.state()
    preempts = site.post("/dry-run", {"request": an_ask("high", gpu=2)}).body
    assert (preempts["outcome"], preempts["pool"], preempts["victims"]) == ("preempts", "gpus", [busy["second"]])
    waits = site.post("/dry-run", {"request": an_ask("low", gpu=1)}).body
    assert (waits["outcome"], [item["verdict"] for item in waits["verdicts"]]) == ("queued", ["no_capacity"])
    never = site.post("/dry-run", {"request": an_ask("low", gpu=5)}).body
    assert (never["outcome"], never["reason"]["code"]) == ("rejected", "exceeds_capacity")
    free = site.post("/dry-run", {"request": {"component": "low"}}).body
    assert (free["outcome"], free["pool"]) == ("allocated", "gpus")
    assert site.state() == before


def test_what_a_change_would_come_to(site: Site, busy: dict[str, str]) -> None:
    waits = site.submit("low", gpu=3)["id"]
    before = site.state()

    def tried(**field: Any) -> dict[str, Any]:
        body = site.post("/dry-run", field).body
        assert "outcome" in body, body
        return {name: body[name] for name in ("granted", "victims", "preemptible", "rejected", "ended") if body[name]}

    assert tried(pool={"name": "gpus", "capacity": {"gpu": 7}}) == {"granted": [waits]}
    assert tried(pool={"name": "gpus", "capacity": {"gpu": 2}}) == {"rejected": [waits]}
    assert tried(pool={"name": "gpus", "description": "ours"}) == {}
    assert tried(policy={"pool": "gpus", "component": "low", "priority": 1, "limit": {"gpu": 2}}) == {"rejected": [waits]}
    assert tried(cancel=waits) == {"ended": [waits]}
    assert tried(drop=busy["first"]) == {"ended": [busy["first"]]}
    (declared,) = site.get("/declaration").body["pools"]
    assert tried(pools=[declared]) == {}
    assert tried(pools=[{**declared, "capacity": {"gpu": 9}}]) == {"granted": [waits]}
    assert site.state() == before


def test_share_taken_away_makes_preemptible(site: Site) -> None:
    site.pool(gpu=4)
    site.policy("low", reserved={"gpu": 2})
    allocation = site.submit("low", gpu=2)["id"]
    body = site.post("/dry-run", {"policy": {"pool": "gpus", "component": "low"}}).body
    assert (body["outcome"], body["preemptible"], body["counts"]["preemptible"]) == ("changes", [allocation], 1)


def test_what_is_refused_for_real_is_refused(site: Site, busy: dict[str, str]) -> None:
    too_much = {"pool": "gpus", "component": "low", "limit": {"gpu": 9}}
    site.post("/dry-run", {"policy": too_much}).refused(422, "limit_beyond_capacity")
    site.post("/dry-run", {"pool": {"name": "nowhere"}}).refused(404, "no_such_pool")
    site.post("/dry-run", {"policy": {"pool": "nowhere", "component": "low"}}).refused(404, "no_such_pool")
    site.post("/dry-run", {"cancel": busy["first"]}).refused(409, "not_queued")
    site.delete(f"/requests/{busy['first']}")
    site.post("/dry-run", {"cancel": busy["first"]}).refused(409, "not_queued")
    assert site.post("/dry-run", {"drop": busy["first"]}).body["outcome"] == "nothing"
    site.post("/dry-run", {"drop": "0" * 20}).refused(404, "no_such_request")


def test_a_dry_run_lists_reprieved_victims(site: Site) -> None:
    site.pool(gpu=4)
    site.policy("low", priority=1)
    site.policy("high", priority=9)
    allocation = site.submit("low", gpu=4, lease_s=None)["id"]
    waits = site.submit("high", gpu=4)["id"]
    site.services.periodic_jobs.reconcile_workspace("default")
    assert site.get(f"/requests/{allocation}").body["status"] == "preempting"
    body = site.post("/dry-run", {"cancel": waits}).body
    assert (body["outcome"], body["reprieved"], body["ended"]) == ("changes", [allocation], [waits])
    assert body["counts"]["reprieved"] == 1


def test_a_submit_that_would_wait_is_told_when_it_may_start(site: Site) -> None:
    site.pool(gpu=4)
    site.policy("low")
    site.submit("low", gpu=4, walltime_s=600)
    (view,) = site.post("/dry-run", {"request": an_ask("low", gpu=1)}).body["verdicts"]
    assert view["estimated_start"]["basis"] == "1 promised walltime"
    real = site.submit("low", gpu=1)["id"]
    (explained,) = site.get(f"/requests/{real}/explain").body["pools"]
    assert explained["estimated_start"] == view["estimated_start"]


def test_times_that_cannot_be_written_are_the_last_that_can() -> None:
    assert time_of(LAST_MS) == time_of(LAST_MS + 1) == time_of(10**18) == "9999-12-31T23:59:59.999Z"
    assert time_of(LAST_MS - 999) == "9999-12-31T23:59:59.000Z"


@pytest.mark.parametrize(("reason", "soon"), [("impossible", False), ("late", False), ("busy", True), ("lost", True)])
def test_why_nothing_is_tried_has_codes_of_its_own(
    site: Site, monkeypatch: pytest.MonkeyPatch, reason: str, soon: bool
) -> None:
    def none(*_: object) -> None:
        raise DryRunUnavailable(reason)

    monkeypatch.setattr(FakeRedisProvider, "empty_redis", none)
    response = site.post("/dry-run", {"request": an_ask()})
    problem = response.refused(503, f"dry_run_{reason}")
    assert problem["detail"] == DRY_RUN_REASONS[reason]
    assert (int(response.headers["Retry-After"]) > LONGEST_RETRY_AFTER_S) is not soon
    assert site.get("/pools").status == 200


def test_of_two_pools_of_a_name_it_is_not_known_which_is_meant(site: Site) -> None:
    twice = {"name": "gpus", "capacity": {"gpu": 1}}
    faults = site.post("/dry-run", {"pools": [twice, twice]}).malformed()
    assert faults == site.put("/declaration", {"pools": [twice, twice]}).malformed()
    assert faults == {"pools": "must list every pool once; gpus is there twice"}


@pytest.mark.parametrize(
    "body", [{}, {"request": an_ask(), "cancel": "x" * 20}, {"prune": True}, {"request": {}}, {"pool": {"capacity": {}}}]
)
def test_what_says_nothing_or_too_much_is_malformed(site: Site, body: dict[str, Any]) -> None:
    assert site.post("/dry-run", body).malformed()


def test_a_requester_tries_what_is_its_own(site: Site, busy: dict[str, str]) -> None:
    secret = site.token("requester", "high", workspaces=["default"])
    body = site.post("/dry-run", {"request": an_ask("high", gpu=2)}, token=secret).body
    assert (body["outcome"], body["victims"], body["counts"]) == ("preempts", [], {"victims": 1})
    site.post("/dry-run", {"request": an_ask("low")}, token=secret).refused(403, "other_component")
    site.post("/dry-run", {"drop": busy["first"]}, token=secret).refused(403, "not_permitted")
