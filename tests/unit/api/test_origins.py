"""Owner and title of a request in events, stories and reasons: a token sees them for its own components only."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.in_process_api import Site

JSON = {"Accept": "application/json"}
ANA = {"user": "ana", "host": "gpu-01", "command": "python train.py --lr 0.1;|@x %20/"}
ANAS = f"ana@gpu-01 {ANA['command']}"


def contended(site: Site) -> tuple[dict[str, Any], dict[str, Any]]:
    """Create a request of bob, which must leave for one of ana."""
    site.pool(gpu=1)
    site.policy()
    site.policy("other")
    allocation = site.submit(labels={"user": "bob"}, name="a name\u2003of words")
    waits = site.submit("other", labels=ANA, preemption_class=8)
    site.preempt(waits["id"], allocation)
    return allocation, waits


def read(site: Site, path: str, **more: Any) -> list[dict[str, Any]]:
    """Return the rows of a list."""
    return site.get(path, headers=JSON, **more).items


def test_an_event_has_the_owner_and_the_title_of_its_request(everywhere: Site) -> None:
    contended(everywhere)
    shown = [(row["event"], row["owner"], row["title"], row["by_origin"]) for row in read(everywhere, "/events")]
    bobs, anas = ("bob", "a name\u2003of words"), ("ana@gpu-01", ANA["command"])
    assert shown == [
        ("submitted", *bobs, None),
        ("allocated", *bobs, None),
        ("submitted", *anas, None),
        ("preempting", *bobs, ANAS),
        ("clearing", *anas, None),
    ]


def test_events_and_a_reason_name_the_waiter_of_a_victim(everywhere: Site) -> None:
    allocation, waits = contended(everywhere)
    path = f"/requests/{allocation['id']}"
    sentence = f"preempted for request {waits['id']} ({ANAS}), which ranks higher"
    assert everywhere.get(path).body["reason"]["message"] == sentence
    assert [row["reason"]["message"] for row in read(everywhere, "/pools/gpus/requests", view="active")] == [sentence]
    everywhere.post(f"{path}/release", {"fence": allocation["fence"], "outcome": "vacated"})
    story = [(row["event"], row["by"], row["by_origin"]) for row in read(everywhere, f"{path}/events")]
    assert story == [
        ("submitted", None, None),
        ("allocated", None, None),
        ("preempting", waits["id"], ANAS),
        ("preempted", waits["id"], ANAS),
    ]
    everywhere.post(f"/requests/{waits['id']}/release", {"fence": everywhere.get(f"/requests/{waits['id']}").body["fence"]})
    assert everywhere.get(path).body["reason"] is None, "it has been granted again"
    assert read(everywhere, f"{path}/events")[-1]["by_origin"] is None


@pytest.mark.parametrize(("components", "is_told"), [(["team"], False), (["team", "other"], True)])
def test_the_origin_of_another_component_is_not_shown(site: Site, components: list[str], is_told: bool) -> None:
    allocation, waits = contended(site)
    token = site.token("requester", *components)
    path = f"/requests/{allocation['id']}"
    origin = ANAS if is_told else None
    assert read(site, f"{path}/events", token=token)[-1]["by_origin"] == origin
    assert [row["by_origin"] for row in read(site, "/events", token=token) if row["event"] == "preempting"] == [origin]
    for document in (site.get(path, token=token).body, read(site, "/requests", token=token)[-1]):
        assert ("ana" in document["reason"]["message"]) is is_told
        assert waits["id"] in document["reason"]["message"]


def test_an_origin_is_cut_and_its_request_is_not(site: Site) -> None:
    site.pool(gpu=1)
    site.policy()
    labels = {"user": "u" * 255, "host": "h" * 255, "command": "c" * 255}
    request = site.submit(labels=labels)
    assert request["labels"] == labels
    event = read(site, "/events")[0]
    assert (event["owner"], event["title"]) == ("u" * 80, "c" * 100)
