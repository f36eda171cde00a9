"""Public descriptions: each has enough words, and names the unit of a number whose name ends in one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

from app.api import openapi
from app.api.metrics.registry import METRICS
from app.domain.pool_settings import ACCOUNT_SETTINGS, SETTINGS
from app.settings import Settings

DOCUMENT = openapi.document()
LEAST_WORDS = 4
UNITS = {
    "s": "second",
    "seconds": "second",
    "ms": "millisecond",
    "minute": "minute",
    "minutes": "minute",
    "hours": "hour",
    "bytes": "byte",
    "mb": "MB",
    "percent": "percent",
}
"""Last word of a name → the unit that its description has to name."""


def schemas() -> Iterator[tuple[str, str]]:
    """Yield each schema of the OpenAPI document with its description."""
    for name, schema in DOCUMENT["components"]["schemas"].items():
        yield name, schema.get("description", "")


def properties() -> Iterator[tuple[str, str]]:
    """Yield each property of these schemas with its description."""
    for name, schema in DOCUMENT["components"]["schemas"].items():
        for field, value in schema.get("properties", {}).items():
            yield f"{name}.{field}", value.get("description", "")


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each operation of the OpenAPI document."""
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def parameters() -> Iterator[tuple[str, str]]:
    """Yield each parameter in a path, a query or a header with its description."""
    for operation_name, operation in operations():
        for parameter in operation["parameters"]:
            yield f"{operation_name} {parameter['name']}", parameter.get("description", "")


DESCRIPTIONS = {
    "schemas": dict(schemas()),
    "properties": dict(properties()),
    "operations": {name: operation["description"] for name, operation in operations()},
    "tags": {tag["name"]: tag["description"] for tag in DOCUMENT["tags"]},
    "parameters": dict(parameters()),
    "process settings": {each.name: each.metadata.get("text", "") for each in fields(Settings)},
    "pool settings": {name: setting.description for name, setting in SETTINGS.items()},
    "account settings": {name: setting.account_description for name, setting in ACCOUNT_SETTINGS.items()},
    "metrics": {name: metric.help for name, metric in METRICS.items()},
}


def fault(name: str, description: str) -> str:
    """Return the rule that a description breaks, or ""."""
    if len(re.findall(r"\w[\w'/:.-]*", description)) < LEAST_WORDS:
        return f"has fewer than {LEAST_WORDS} words"
    unit = UNITS.get(re.split(r"[._ ]", name.removesuffix("_total"))[-1], "")
    return "" if unit in description or unit in description.lower() else f"does not name its unit, {unit}"


@pytest.mark.parametrize("kind", DESCRIPTIONS)
def test_a_description_has_four_words_and_names_the_unit(kind: str) -> None:
    assert len(DESCRIPTIONS[kind]) > 5
    faults = {name: f"{fault(name, text)}: {text}" for name, text in DESCRIPTIONS[kind].items() if fault(name, text)}
    assert faults == {}


@pytest.mark.parametrize(
    ("name", "description"),
    [
        ("name", ""),
        ("name", "The name, unique"),
        ("lease_s", "The length of the lease."),
        ("RequestSpec.lease_s", "The length of the lease."),
        ("GET /requests wait_s", "The length of the wait."),
        ("access_log_slow_ms", "Seconds after which a request is slow."),
        ("max_body_bytes", "The largest body of a batch."),
    ],
)
def test_a_poor_description_is_found(name: str, description: str) -> None:
    assert fault(name, description)


@pytest.mark.parametrize(
    ("name", "description"),
    [("name", "The name of the pool."), ("lease_s", "Seconds from a heartbeat to the end of the lease.")],
)
def test_a_good_description_passes(name: str, description: str) -> None:
    assert fault(name, description) == ""
