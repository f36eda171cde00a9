"""The examples of the document: one for each body and each answer that can come, and each as its schema says."""

from __future__ import annotations

import re
from typing import Any

import jsonschema_rs
import pytest

from app.api import openapi
from app.api.openapi_examples import Examples
from app.api.routes import AT_ROOT, PREFIX, ROUTES
from app.api.routing import Route

DOCUMENT: dict[str, Any] = openapi.document()
ROWS = [*((PREFIX, route) for route in ROUTES), *(("", route) for route in AT_ROOT)]
BY_NAME = {route.name: (prefix, route) for prefix, route in ROWS}
RECORDED = Examples.read().operations


def operation(name: str) -> dict[str, Any]:
    prefix, route = BY_NAME[name]
    found: dict[str, Any] = DOCUMENT["paths"][prefix + route.path][route.method.lower()]
    return found


def check(schema: dict[str, Any], value: Any) -> None:
    """Raise unless the value is as the schema says."""
    jsonschema_rs.validator_for({**schema, "components": DOCUMENT["components"]}).validate(value)


def statuses(route: Route) -> set[int]:
    return {*route.success_statuses, *route.failure_statuses}


@pytest.mark.parametrize("name", BY_NAME)
def test_every_status_that_is_documented_came_and_no_other(name: str) -> None:
    _, route = BY_NAME[name]
    recorded = RECORDED[route.operation_id]
    came = {int(status) for kind in ("responses", "problems") for status in recorded.get(kind, {})}
    without_body = {204} & set(route.success_statuses)
    assert came | without_body == statuses(route)
    assert set(operation(name)["responses"]) == {str(status) for status in statuses(route)}


@pytest.mark.parametrize("name", BY_NAME)
def test_the_example_of_a_body_is_as_its_schema_says(name: str) -> None:
    _, route = BY_NAME[name]
    if route.body_model is None:
        assert "requestBody" not in operation(name)
        return
    content = operation(name)["requestBody"]["content"]["application/json"]
    check(content["schema"], content["example"])
    route.body_model.model_validate(content["example"])


@pytest.mark.parametrize("name", BY_NAME)
def test_the_example_of_each_answer_is_as_its_schema_says(name: str) -> None:
    for status, response in operation(name)["responses"].items():
        assert ("content" in response) == (status != "204")
        for content in response.get("content", {}).values():
            if int(status) < 400:
                check(content["schema"], content["example"])
                continue
            assert content["examples"], status
            for reference in content["examples"].values():
                example = DOCUMENT["components"]["examples"][reference["$ref"].removeprefix("#/components/examples/")]
                assert example["value"]["status"] == int(status)
                assert example["summary"] == example["value"]["detail"]
                check(content["schema"], example["value"])


@pytest.mark.parametrize("name", BY_NAME)
def test_the_example_of_a_path_parameter_is_as_its_schema_says(name: str) -> None:
    for parameter in operation(name)["parameters"]:
        assert ("example" in parameter) == (parameter["in"] == "path")
        if parameter["in"] == "path":
            assert re.fullmatch(parameter["schema"]["pattern"], parameter["example"])


def test_every_shared_problem_is_of_some_answer() -> None:
    names = {name for recorded in RECORDED.values() for shared in recorded["problems"].values() for name in shared}
    assert names == DOCUMENT["components"]["examples"].keys()


def test_no_example_has_a_secret() -> None:
    assert not re.search(r"pk_[A-Za-z0-9]", openapi.document_json())


def test_requests_stand_first_and_every_tag_is_described() -> None:
    tags = [tag["name"] for tag in DOCUMENT["tags"]]
    assert tags[:5] == ["requests", "explain", "dry-run", "tasks", "events"]
    assert set(tags) == {route.tag for _, route in ROWS}
    assert all(tag["description"].endswith(".") for tag in DOCUMENT["tags"])
    first = next(route for _, route in ROWS if route.tag == "requests")
    assert first.name == "POST /requests"
