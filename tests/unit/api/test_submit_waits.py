"""The answer to a submit: why a queued request waits, and submit and wait in one call."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from app.service.long_poll import POLL_INTERVAL_S
from tests.support.backends import wait_until
from tests.support.in_process_api import Site, an_ask


@pytest.fixture
def full(everywhere: Site) -> Site:
    """Create a pool of one GPU that is in use."""
    everywhere.pool(gpu=1)
    everywhere.policy()
    everywhere.submit()
    return everywhere


def waiting_polls(site: Site) -> int:
    """Return the number of calls that wait."""
    return site.services.long_polls.slots.used()["poll"]


def post_in_wait(site: Site, act: Callable[[], object], **options: Any) -> Any:
    """Return the response of a submit that waits; during its wait `act` is called. The wait does not end by polling."""
    with ThreadPoolExecutor(1) as calls:
        answer = calls.submit(site.post, "/requests", an_ask(), wait_s=60, **options)
        wait_until(lambda: waiting_polls(site) == 1, "it waits")
        start = time.monotonic()
        act()
        result = answer.result(30)
    assert time.monotonic() - start < POLL_INTERVAL_S
    return result


def test_the_answer_to_a_queued_request_says_why_it_waits(full: Site) -> None:
    body = full.post("/requests", an_ask()).body
    assert body["waits"] == {
        "sentence": f"Request {body['id']} waits in gpus as number 1 of 1: it needs 1 gpu, and 0 of 1 are free.",
        "pools": [
            {
                "pool": "gpus",
                "position": 1,
                "waiting": 1,
                "verdict": "no_capacity",
                "sentence": "it needs 1 gpu, and 0 of 1 are free",
            }
        ],
    }
    explanation = full.get(f"/requests/{body['id']}/explain").body
    assert (explanation["sentence"], explanation["pools"][0]["verdict"]) == (body["waits"]["sentence"], "no_capacity")


def test_a_request_that_does_not_wait_has_no_reason(everywhere: Site) -> None:
    everywhere.pool(gpu=1)
    everywhere.policy()
    assert everywhere.post("/requests", an_ask()).body["waits"] is None
    assert everywhere.post("/requests", an_ask(resources={"gpu": 2})).body["waits"] is None


def test_a_token_for_some_components_sees_no_ids_of_others(site: Site) -> None:
    site.pool(gpu=2, settings={"queueing": "strict"})
    site.policy()
    site.policy("other")
    site.submit(resources={"gpu": 1})
    first = site.submit(component="other", resources={"gpu": 2})
    secret = site.token("requester", "team")
    sentence = site.post("/requests", an_ask(), token=secret).body["waits"]["sentence"]
    assert "another request is before it" in sentence
    assert first["id"] not in sentence


def test_it_answers_when_it_is_granted(full: Site) -> None:
    holder = full.get("/requests").body["items"][0]
    answer = post_in_wait(full, lambda: full.post(f"/requests/{holder['id']}/release", {"fence": holder["fence"]}))
    assert (answer.status, answer.body["status"], answer.body["waits"]) == (201, "allocated", None)
    assert waiting_polls(full) == 0


def test_it_answers_when_it_is_cancelled(full: Site) -> None:
    def cancel() -> None:
        waiter = full.get("/requests", status="queued").body["items"][0]
        full.post(f"/requests/{waiter['id']}/cancel", {})

    assert post_in_wait(full, cancel).body["status"] == "cancelled"


def test_it_answers_when_the_time_is_up_and_says_why_it_waits(full: Site) -> None:
    body = full.post("/requests", an_ask(), wait_s=0.05).body
    assert (body["status"], body["waits"]["pools"][0]["verdict"]) == ("queued", "no_capacity")


def test_without_need_to_wait_it_takes_no_slot(everywhere: Site) -> None:
    everywhere.pool(gpu=1)
    everywhere.policy()
    everywhere.services.long_polls.slots.capacities["poll"] = 0
    answer = everywhere.post("/requests", an_ask(), wait_s=60)
    assert (answer.body["status"], "Retry-After" in answer.headers) == ("allocated", False)
    rejected = everywhere.post("/requests", an_ask(resources={"gpu": 2}), wait_s=60)
    assert rejected.body["status"] == "rejected"


def test_without_a_slot_it_answers_at_once_and_says_when_to_ask_again(full: Site) -> None:
    full.services.long_polls.slots.capacities["poll"] = 0
    answer = full.post("/requests", an_ask(), wait_s=60)
    assert (answer.status, answer.body["status"], answer.headers["Retry-After"]) == (201, "queued", "1")
    assert answer.body["waits"]["pools"]


def test_a_token_waits_in_its_share_of_the_slots(site: Site) -> None:
    site.pool(gpu=1)
    site.policy()
    site.submit()
    secret = site.token("requester", "team")
    site.services.long_polls.slots.token_shares["poll"] = 1

    def post_again() -> None:
        answer = site.post("/requests", an_ask(), wait_s=60, token=secret)
        assert answer.headers["Retry-After"] == "1"
        waiter = site.get("/requests", status="queued", token=secret).body["items"][-1]
        site.post(f"/requests/{waiter['id']}/cancel", {}, token=secret)

    assert post_in_wait(site, post_again, token=secret).body["status"] == "cancelled"


def test_a_repeated_call_waits_for_the_same_request(full: Site) -> None:
    key = {"Idempotency-Key": "night"}
    first = full.post("/requests", an_ask(), headers=key).body
    holder = full.get("/requests", status="allocated").body["items"][0]
    release = f"/requests/{holder['id']}/release"
    answer = post_in_wait(full, lambda: full.post(release, {"fence": holder["fence"]}), headers=key)
    assert (answer.body["id"], answer.body["status"]) == (first["id"], "allocated")
    assert full.post("/requests", an_ask(), headers=key, wait_s=60).body["fence"] == answer.body["fence"]


def test_the_end_of_the_process_ends_the_wait(full: Site) -> None:
    answer = post_in_wait(full, full.services.long_polls.close)
    assert (answer.status, answer.body["status"]) == (201, "queued")


def test_a_wait_counts_as_a_poll(full: Site) -> None:
    full.clock.advance(100)
    body = full.post("/requests", an_ask(queue_ttl_s=60), wait_s=0.01).body
    assert body["polled_at"] == body["submitted_at"]


@pytest.mark.parametrize("query", [{"wait_s": -1}, {"wait_s": 61}, {"wait_s": "nan"}, {"status": "queued"}])
def test_a_wait_that_cannot_be(full: Site, query: dict[str, Any]) -> None:
    assert full.post("/requests", an_ask(), **query).malformed().keys() == query.keys()
