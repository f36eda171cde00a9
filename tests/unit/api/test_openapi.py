"""The document: a valid one of OpenAPI 3.1, complete, and true to what is answered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from schemathesis.specs.openapi import definitions

from app.api import openapi
from app.api.routes import AT_ROOT, PREFIX, ROUTES
from tests.support.in_process_api import Site, a_task, an_ask

DOCUMENT: dict[str, Any] = openapi.document()
ROWS = [("", route) for route in AT_ROOT] + [(PREFIX, route) for route in ROUTES]

MUST = {  # route: every status it can answer, beside those of every route with a token
    "POST /pools": "201 409 413 415 422",
    "GET /pools": "200",
    "GET /pools/{pool}": "200 404",
    "PATCH /pools/{pool}": "200 404 409 413 415 422",
    "DELETE /pools/{pool}": "204 404 409",
    "GET /pools/{pool}/requests": "200 404",
    "GET /pools/{pool}/shares": "200 404",
    "GET /pools/{pool}/history": "200 404",
    "GET /pools/{pool}/policies": "200 404",
    "PUT /pools/{pool}/policies/{component}": "200 201 404 409 413 415 422",
    "GET /pools/{pool}/policies/{component}": "200 404",
    "DELETE /pools/{pool}/policies/{component}": "204 404 409",
    "GET /pools/{pool}/groups": "200 404",
    "PUT /pools/{pool}/groups/{group}": "200 201 404 409 413 415 422",
    "GET /pools/{pool}/groups/{group}": "200 404",
    "DELETE /pools/{pool}/groups/{group}": "204 404 409",
    "GET /components/{component}/policies": "200",
    "POST /requests": "201 409 413 415",
    "POST /requests/batch": "201 413 415",
    "GET /requests": "200",
    "GET /requests/{request}": "200 404",
    "DELETE /requests/{request}": "200 404",
    "POST /requests/{request}/heartbeat": "200 404 409 413 415",
    "POST /requests/{request}/release": "200 404 409 413 415",
    "POST /requests/{request}/checkpoint": "200 404 409 413 415",
    "POST /requests/{request}/cancel": "200 404 409 413 415",
    "GET /requests/{request}/events": "200 404",
    "GET /requests/{request}/explain": "200 404",
    "GET /requests/{request}/estimate": "200 404",
    "POST /dry-run": "200 404 409 413 415 422",
    "POST /tasks": "201 409 413 415 422",
    "GET /tasks/{task}": "200 404",
    "POST /tasks/{task}/cancel": "200 404 409 413 415",
    "POST /tasks/{task}/heard": "204 404 409 413 415",
    "POST /requests/{request}/start": "200 404 409 413 415",
    "GET /events": "200",
    "GET /workspace": "200",
    "PATCH /workspace": "200 413 415",
    "GET /whoami": "200",
    "GET /declaration": "200",
    "POST /declaration/plan": "200 413 415 422",
    "PUT /declaration": "200 409 413 415 422",
    "GET /metrics": "200",
}
OF_ALL = {"400", "401", "403", "429", "503"}


def _operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, verbs in DOCUMENT["paths"].items():
        for verb, operation in verbs.items():
            yield f"{verb.upper()} {path}", operation


def test_it_is_valid() -> None:
    definitions.OPENAPI_31_VALIDATOR.validate(DOCUMENT)


def test_every_schema_in_it_is_a_schema_and_every_reference_leads_somewhere() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema)
    for reference in re.findall(r'"\$ref": "([^"]+)"', openapi.document_json()):
        kind, name = reference.removeprefix("#/components/").split("/")
        assert name in DOCUMENT["components"][kind]


def test_it_has_every_route_and_nothing_else() -> None:
    expected = sorted(f"{route.method} {prefix}{route.path}" for prefix, route in ROWS)
    assert sorted(name for name, _ in _operations()) == expected
    names = [operation["operationId"] for _, operation in _operations()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("route", MUST)
def test_a_route_has_every_status_it_can_answer(route: str) -> None:
    verb, _, path = route.partition(" ")
    where = path if path == "/metrics" else PREFIX + path
    responses = DOCUMENT["paths"][where][verb.lower()]["responses"]
    assert set(responses) == OF_ALL | set(MUST[route].split())
    for status, answer in responses.items():
        if int(status) >= 400:
            assert list(answer["content"]) == ["application/problem+json"]
        assert ("Retry-After" in answer.get("headers", {})) == (status in ("429", "503"))


def test_the_table_above_has_every_route() -> None:
    assert sorted(MUST) == sorted(route.name for _, route in ROWS if route.permission)


def test_everything_is_described() -> None:
    for name, operation in _operations():
        assert operation["summary"], name
        assert "Permission: `" in operation["description"] or operation["tags"] == ["health"], name
        for parameter in operation["parameters"]:
            assert parameter["schema"], (name, parameter["name"])


def test_only_what_needs_no_token_says_so() -> None:
    open_ones = {name for name, operation in _operations() if "security" not in operation}
    assert open_ones == {"GET /healthz", "GET /readyz"}


def test_it_is_served_as_it_is_made(site: Site) -> None:
    answer = site.get("/openapi.json")
    assert (answer.status, answer.kind) == (200, "application/json")
    assert answer.body == DOCUMENT


def _fits(name: str, status: int, body: Any) -> None:
    """Raise unless a response has the documented shape."""
    verb, _, path = name.partition(" ")
    content = DOCUMENT["paths"][PREFIX + path][verb.lower()]["responses"][str(status)]["content"]
    schema = next(iter(content.values()))["schema"]
    jsonschema_rs.validator_for({**schema, "components": DOCUMENT["components"]}).validate(body)


def test_what_is_answered_has_the_shape_that_is_promised(site: Site) -> None:
    site.pool(gpu=1)
    site.policy(reserved={"gpu": 1}, limit={"gpu": 1})
    site.put("/pools/gpus/groups/lab", {"limit": {"gpu": 1}})
    allocation, waits, rejected = site.submit(labels={"a": "b"}), site.submit(), site.submit(gpu=2)
    json = {"Accept": "application/json"}
    for path, filled in (
        ("/pools", "/pools"),
        ("/pools/{pool}", "/pools/gpus"),
        ("/pools/{pool}/requests", "/pools/gpus/requests"),
        ("/pools/{pool}/shares", "/pools/gpus/shares"),
        ("/pools/{pool}/history", "/pools/gpus/history"),
        ("/pools/{pool}/policies", "/pools/gpus/policies"),
        ("/pools/{pool}/policies/{component}", "/pools/gpus/policies/team"),
        ("/pools/{pool}/groups", "/pools/gpus/groups"),
        ("/pools/{pool}/groups/{group}", "/pools/gpus/groups/lab"),
        ("/components/{component}/policies", "/components/team/policies"),
        ("/requests", "/requests"),
        *(("/requests/{request}", f"/requests/{request['id']}") for request in (allocation, waits, rejected)),
        ("/requests/{request}/events", f"/requests/{allocation['id']}/events"),
        ("/requests/{request}/explain", f"/requests/{allocation['id']}/explain"),
        ("/requests/{request}/explain", f"/requests/{waits['id']}/explain"),
        ("/requests/{request}/estimate", f"/requests/{waits['id']}/estimate"),
        ("/events", "/events"),
        ("/workspace", "/workspace"),
        ("/whoami", "/whoami"),
        ("/declaration", "/declaration"),
    ):
        _fits(f"GET {path}", 200, site.get(filled, headers=json).body)
    batch = site.post("/requests/batch", {"requests": [an_ask(), {}]})
    _fits("POST /requests/batch", 201, batch.body)
    stale = site.post(f"/requests/{allocation['id']}/release", {"fence": 99})
    _fits("POST /requests/{request}/release", 409, stale.body)
    beat = {"fence": allocation["fence"], "state": "completed", "reference": "x"}
    _fits("POST /requests/{request}/checkpoint", 200, site.post(f"/requests/{allocation['id']}/checkpoint", beat).body)
    _fits("POST /pools", 400, site.post("/pools", {}).body)
    larger = {"pool": {"name": "gpus", "capacity": {"gpu": 2}}}
    trials: list[dict[str, Any]] = [{"request": an_ask()}, {"request": an_ask(gpu=9)}, {"pools": []}, larger]
    for body in trials:
        _fits("POST /dry-run", 200, site.post("/dry-run", body).body)
    _fits("POST /declaration/plan", 200, site.post("/declaration/plan", {"pools": [{"name": "x", "capacity": {"g": 1}}]}).body)


def test_what_is_answered_of_a_preemption_has_the_shape_that_is_promised(site: Site) -> None:
    site.pool(gpu=1)
    site.policy()
    allocation, waits = site.submit(), site.submit(preemption_class=8)
    site.preempt(waits["id"], allocation)
    for request in (allocation, waits):
        _fits("GET /requests/{request}", 200, site.get(f"/requests/{request['id']}").body)
        _fits("GET /requests/{request}/events", 200, site.get(f"/requests/{request['id']}/events").body)
    _fits("GET /events", 200, site.get("/events", headers={"Accept": "application/json"}).body)
    beat = site.post(f"/requests/{allocation['id']}/heartbeat", {"fence": allocation["fence"]})
    _fits("POST /requests/{request}/heartbeat", 200, beat.body)
    left = site.post(f"/requests/{allocation['id']}/checkpoint", {"fence": allocation["fence"], "state": "completed"})
    _fits("POST /requests/{request}/checkpoint", 200, left.body)


def test_what_is_answered_of_tasks_has_the_shape_that_is_promised(site: Site) -> None:
    site.pool(gpu=1)
    site.policy()
    _fits("POST /tasks", 201, site.park("granted"))
    _fits("POST /tasks", 201, site.park("parked"))
    _fits("POST /tasks", 201, site.park("delayed", not_before="2030-01-01T00:00:00Z"))
    _fits("POST /tasks", 409, site.post("/tasks", a_task("parked")).body)
    for task in ("granted", "parked", "delayed"):
        _fits("GET /tasks/{task}", 200, site.get(f"/tasks/{task}").body)
    allocation = site.get("/tasks/granted").body["request"]
    start = site.post(f"/requests/{allocation['id']}/start", {"fence": allocation["fence"], "runner": "w"})
    _fits("POST /requests/{request}/start", 200, start.body)
    _fits("GET /requests/{request}", 200, site.get(f"/requests/{allocation['id']}").body)
    _fits("POST /tasks/{task}/cancel", 200, site.post("/tasks/delayed/cancel").body)


def test_that_a_stale_holder_has_to_stop_is_documented() -> None:
    problem = DOCUMENT["components"]["schemas"]["Problem"]["properties"]
    assert problem["directive"]["anyOf"][0] == {"const": "kill", "type": "string"}
    assert "stop its work at once" in problem["directive"]["description"]


@pytest.mark.parametrize(
    ("fields", "right"),
    [
        ({"state": "progress"}, True),
        ({"state": "progress", "seconds": None, "reference": None}, True),
        ({"state": "progress", "seconds": 5}, False),
        ({"state": "defer"}, False),
        ({"state": "defer", "seconds": None}, False),
        ({"state": "defer", "seconds": 5}, True),
        ({"state": "completed", "reference": "x"}, True),
        ({"state": "failed", "reference": "x"}, False),
    ],
)
def test_what_goes_with_a_checkpoint_is_in_the_schema(site: Site, fields: dict[str, Any], right: bool) -> None:
    body = {"fence": 1, **fields}
    schema = {"$ref": "#/components/schemas/CheckpointBody", "components": DOCUMENT["components"]}
    assert jsonschema_rs.validator_for(schema).is_valid(body) is right
    assert (site.post("/requests/none/checkpoint", body).status == 404) is right


@pytest.mark.parametrize("broken", [{"id": 1}, {"status": "done"}, {"submitted_at": None}])
def test_a_shape_that_is_not_the_promised_one_is_seen(site: Site, broken: dict[str, Any]) -> None:
    site.pool()
    site.policy()
    with pytest.raises(jsonschema_rs.ValidationError):
        _fits("POST /requests", 201, site.submit() | broken)


def test_maps_bind_their_keys() -> None:
    ask = jsonschema_rs.validator_for({"$ref": "#/components/schemas/RequestSpec", "components": DOCUMENT["components"]})
    assert ask.is_valid(an_ask(gpu=1))
    for resources in ({"GPU": 1}, {"gpu": 0}, {"": 1}, {"gpu": "1"}):
        assert not ask.is_valid(an_ask(resources=resources))
