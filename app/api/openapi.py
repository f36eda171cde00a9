"""The OpenAPI document, made of the table of routes and the models they name. Nothing of it is written by hand."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.api.errors import PROBLEM_TYPE
from app.api.routes import AT_ROOT, PREFIX, ROUTES
from app.api.routing import STREAM, Route, path_pattern
from app.api.schemas.requests import Problem
from app.domain.names import IDEMPOTENCY_PATTERN, NAME_PATTERN

Mode: TypeAlias = Literal["validation", "serialization"]
Schema: TypeAlias = dict[str, Any]
References: TypeAlias = Mapping[tuple[Any, Mode], Schema]
"""Model and mode → a reference to its schema."""

REFERENCE = "#/components/schemas/{model}"
SECURED: list[Schema] = [{}, {"token": []}]
"""With a token, and on the loopback address perhaps without."""
DESCRIPTION = """Shares scarce capacity between the teams of an ML platform: ask for several resources at once, be told
allocated, queued or rejected, hold what was granted by heartbeats under a fence, and give it back.

Every error is a problem document (RFC 9457) with a stable `code`. Lists are told in pages: `limit` and `cursor`."""

HEADERS: dict[str, Schema] = {
    "Idempotency-Key": {
        "description": "Repeat the call with the same key and body, and it is done once.",
        "schema": {"type": "string", "pattern": IDEMPOTENCY_PATTERN},
    },
    "Last-Event-ID": {
        "description": "Go on after this event.",
        "schema": {"type": "string", "pattern": r"^[0-9]{1,16}(-[0-9]{1,16})?$"},
    },
    "Poolkeeper-Workspace": {
        "description": "The workspace; without it `default`.",
        "schema": {"type": "string", "pattern": NAME_PATTERN, "default": "default"},
    },
}
RETRY_AFTER = {"Retry-After": {"description": "Seconds after which to try again.", "schema": {"type": "integer", "minimum": 1}}}


@cache
def written() -> str:
    """The document as JSON."""
    return json.dumps(document(), ensure_ascii=False)


def document() -> Schema:
    """The document."""
    rows = [("", route) for route in AT_ROOT] + [(PREFIX, route) for route in ROUTES]
    references, schemas = _schemas(route for _, route in rows)
    paths: dict[str, Schema] = {}
    for prefix, route in rows:
        paths.setdefault(prefix + route.path, {})[route.method.lower()] = _operation(route, references, schemas)
    for route in (route for _, route in rows):
        schemas.pop(route.query.__name__, None)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Poolkeeper", "version": version("poolkeeper-server"), "description": DESCRIPTION},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _schemas(routes: Iterable[Route]) -> tuple[References, dict[str, Schema]]:
    """A reference to the schema of every model of the table, by model and mode; and all the schemas, by name."""
    models: dict[tuple[type[BaseModel], Mode], None] = {(Problem, "serialization"): None}
    for route in routes:
        models[(route.query, "validation")] = None
        if route.body:
            models[(route.body, "validation")] = None
        if route.answer:
            models[(route.answer, "serialization")] = None
    references, definitions = models_json_schema(list(models), by_alias=True, ref_template=REFERENCE)
    return references, _closed(definitions["$defs"])


def _closed(schema: Any) -> Any:
    """The schema, with the keys of each map bound to their pattern: pydantic says the pattern, and lets others pass."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    shut = {"additionalProperties": False} if "patternProperties" in schema else {}
    return {name: _closed(part) for name, part in schema.items()} | shut


def _operation(route: Route, references: References, schemas: dict[str, Schema]) -> Schema:
    said = inspect.getdoc(route.handler) or ""
    summary, _, more = said.partition("\n")
    operation: Schema = {
        "operationId": f"{route.tag}_{route.handler.__name__}",
        "tags": [route.tag],
        "summary": summary.split(". ")[0].rstrip("."),
        "description": " ".join(f"{summary} {more}".split()) + (f" (permission: {route.may})" if route.may else ""),
        "parameters": [*_in_path(route), *_in_query(schemas[route.query.__name__]), *_in_headers(route)],
        "responses": {str(status): _success(route, status, references) for status in route.statuses}
        | {str(status): _failure(status, references) for status in route.failures},
    }
    if route.may:
        operation["security"] = SECURED
    if route.body:
        body = {"application/json": {"schema": references[(route.body, "validation")]}}
        operation["requestBody"] = {"required": not route.body_may_be_absent, "content": body}
    return operation


def _in_path(route: Route) -> list[Schema]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": path_pattern(name)}}
        for name in route.path_names
    ]


def _in_query(schema: Schema) -> list[Schema]:
    parameters = []
    for name, of in schema.get("properties", {}).items():
        of = {key: value for key, value in of.items() if key != "title"}
        parameter = {"name": name, "in": "query", "required": False, "schema": _given(of)}
        parameter |= {"description": of["description"]} if "description" in of else {}
        parameters.append(parameter)
    return parameters


def _given(schema: Schema) -> Schema:
    """The schema of a parameter that is given: absent is the only way to say nothing in a query string."""
    kinds = [kind for kind in schema.get("anyOf", []) if kind.get("type") != "null"]
    if len(kinds) != 1:
        return {key: value for key, value in schema.items() if key != "description"}
    given: Schema = kinds[0]
    return given


def _in_headers(route: Route) -> list[Schema]:
    names = [*route.headers, *(["Poolkeeper-Workspace"] if route.may and route.in_workspace else [])]
    return [{"name": name, "in": "header", "required": False, **HEADERS[name]} for name in names]


def _success(route: Route, status: int, references: References) -> Schema:
    found: Schema = {"description": HTTPStatus(status).phrase}
    if status != 204:
        shaped = {"schema": references[(route.answer, "serialization")]} if route.answer else {"schema": {"type": "string"}}
        found["content"] = {kind: {"schema": {"type": "string"}} if kind == STREAM else shaped for kind in route.produces}
    return found


def _failure(status: int, references: References) -> Schema:
    problem = {PROBLEM_TYPE: {"schema": references[(Problem, "serialization")]}}
    found: Schema = {"description": HTTPStatus(status).phrase, "content": problem}
    return found | ({"headers": RETRY_AFTER} if status in (429, 503) else {})
