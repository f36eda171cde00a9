"""A token for all components of a type or of a template: everywhere it reaches those that match, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.in_process_api import Site, a_task, an_ask

COMPONENTS = ["intern/user-1", "intern/user-", "intern/user", "intern/User-1", "intern/x", "interns/user-1", "user-1", "user.1"]
PATTERNS = {
    "intern/*": {"intern/user-1", "intern/user-", "intern/user", "intern/User-1", "intern/x"},
    "intern/user-*": {"intern/user-1", "intern/user-"},
    "user-*": {"user-1"},
    "*": {"user-1", "user.1"},
    "intern/user": {"intern/user"},
}


@pytest.fixture
def requests(site: Site) -> dict[str, dict[str, Any]]:
    """Create a waiter of each component, behind a request that holds the pool."""
    site.pool(gpu=1)
    site.policy("base/holder")
    for component in COMPONENTS:
        site.policy(component)
    site.submit("base/holder", gpu=1)
    return {component: site.submit(component, gpu=1) for component in COMPONENTS}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_lists_and_events_have_what_matches(site: Site, requests: dict[str, dict[str, Any]], pattern: str) -> None:
    reached = {requests[component]["id"] for component in PATTERNS[pattern]}
    secret = site.token("requester", pattern)
    assert {row["id"] for row in site.get("/requests", token=secret).items} == reached
    assert {row["id"] for row in site.get("/pools/gpus/requests", token=secret).items} == reached
    events = site.get("/events", token=secret, headers={"Accept": "application/json"}).items
    assert {event["request"] for event in events} == reached


@pytest.mark.parametrize("pattern", PATTERNS)
def test_calls_for_what_matches_are_served_and_others_refused(
    site: Site, requests: dict[str, dict[str, Any]], pattern: str
) -> None:
    secret = site.token("requester", pattern)
    for component, request in requests.items():
        answers = [
            site.get(f"/requests/{request['id']}", token=secret),
            site.get(f"/requests/{request['id']}/events", token=secret),
            site.get(f"/requests/{request['id']}/explain", token=secret),
            site.get(f"/requests/{request['id']}/estimate", token=secret),
            site.post("/dry-run", {"request": an_ask(component)}, token=secret),
            site.post("/requests", an_ask(component), token=secret),
            site.post("/tasks", a_task(f"t-{component.replace('/', '.')}", component), token=secret),
            site.post(f"/requests/{request['id']}/cancel", token=secret),
        ]
        if component in PATTERNS[pattern]:
            assert {answer.status for answer in answers} <= {200, 201}, component
        else:
            assert {answer.body["code"] for answer in answers} == {"other_component"}, component


def test_a_batch_is_judged_ask_by_ask(site: Site, requests: dict[str, dict[str, Any]]) -> None:
    secret = site.token("requester", "intern/user-*")
    answer = site.post("/requests/batch", {"requests": [an_ask(component) for component in COMPONENTS]}, token=secret)
    refused = {component for component, item in zip(COMPONENTS, answer.items, strict=True) if item.get("code")}
    assert refused == set(COMPONENTS) - PATTERNS["intern/user-*"]


def test_no_component_is_called_like_a_pattern(site: Site) -> None:
    secret = site.token("requester", "intern/*")
    for name in ("*", "user-*", "a*b", "x\n", "../x", "x/y", ""):
        body = {"component": name, "component_type": "intern", "resources": {"gpu": 1}}
        assert "component" in site.post("/requests", body, token=secret).malformed()
    assert site.get("/requests").status == 401


def test_the_limit_of_a_token_counts_all_names_together(site: Site, requests: dict[str, dict[str, Any]]) -> None:
    secret = site.token("requester", "intern/*", limits={"max_waiting": 2})
    first, second = (component for component in COMPONENTS if component.startswith("intern/user-"))
    for component in (first, second):
        assert site.post("/requests", an_ask(component), token=secret).body["status"] == "queued"
    problem = site.post("/requests", an_ask("intern/x"), token=secret).refused(429, "too_many_waiting")
    assert problem["limit_of"].startswith("token/")


def test_the_limit_of_a_component_is_of_that_component_alone(site: Site, requests: dict[str, dict[str, Any]]) -> None:
    limits = {"component_limits": {"intern/user-1": {"max_waiting": 1}}}
    assert site.patch("/workspace", limits).status == 200
    secret = site.token("requester", "intern/*")
    assert site.post("/requests", an_ask("intern/user-1"), token=secret).status == 201
    assert site.post("/requests", an_ask("intern/user-1"), token=secret).refused(429, "too_many_waiting")
    assert site.post("/requests", an_ask("intern/x"), token=secret).status == 201
    pattern = {"component_limits": {"intern/*": {"max_waiting": 1}}}
    assert "component_limits.intern/*" in str(site.patch("/workspace", pattern, token=site.token()).malformed())


def test_a_requester_sees_its_patterns(site: Site) -> None:
    secret = site.token("requester", "intern/*", "user-*", "vision")
    assert site.get("/whoami", token=secret).body["components"] == ["intern/*", "orchestrator/user-*", "vision"]
