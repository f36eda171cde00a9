"""The OpenAPI document, made from the table of routes and the models of their handlers."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from threading import Lock
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.api.error_codes import ERROR_CODES
from app.api.errors import PROBLEM_TYPE
from app.api.openapi_examples import Examples
from app.api.routes import AT_ROOT, PREFIX, ROUTES
from app.api.routing import EVENT_STREAM, Route, path_pattern
from app.api.schemas.problems import Problem
from app.domain.names import IDEMPOTENCY_PATTERN, NAME_PATTERN
from app.domain.tokens import role_words, roles_with

Mode: TypeAlias = Literal["validation", "serialization"]
Schema: TypeAlias = dict[str, Any]
References: TypeAlias = Mapping[tuple[Any, Mode], Schema]
"""Model and mode → a reference to its schema."""

REFERENCE_TEMPLATE = "#/components/schemas/{model}"
SECURITY: list[Schema] = [{}, {"token": []}]
"""A token, or no token: on the loopback address the service may need none."""
DESCRIPTION = """Shares scarce capacity between the teams of an ML platform. A request asks units of several keys at once. It is
allocated, queued or rejected. Heartbeats with a fence keep an allocation until it is released.

Every error is a problem document (RFC 9457) with a stable `code`. Lists come in pages, by `limit` and `cursor`."""

HEADERS: dict[str, Schema] = {
    "Idempotency-Key": {
        "description": "A key chosen by the client. A call that is repeated with the same key and body is done once.",
        "schema": {"type": "string", "pattern": IDEMPOTENCY_PATTERN},
    },
    "Last-Event-ID": {
        "description": "The id of an event: only later events are returned.",
        "schema": {"type": "string", "pattern": r"^[0-9]{1,16}(-[0-9]{1,16})?$"},
    },
    "Poolkeeper-Workspace": {
        "description": "The name of the workspace; without it `default`.",
        "schema": {"type": "string", "pattern": NAME_PATTERN, "default": "default"},
    },
}
RETRY_AFTER = {"Retry-After": {"description": "Seconds after which to try again.", "schema": {"type": "integer", "minimum": 1}}}

PATH_PARAMETERS: Mapping[str, str] = {
    "pool": "The name of the pool.",
    "component": "The name of the component, or the pattern of a policy template.",
    "group": "The name of the group.",
    "request": "The id of the request.",
    "task": "The id of the task.",
}

FIRST_TAGS = ("requests", "explain", "dry-run", "tasks", "events")
"""The tags that stand first on the page: most clients call their operations."""

_making = Lock()
"""The lock of the construction: concurrent calls make the document once."""


def document_json() -> str:
    """Return the document as JSON; it is made by the first call."""
    with _making:
        return _document_json()


@cache
def _document_json() -> str:
    return json.dumps(document(), ensure_ascii=False)


def document() -> Schema:
    """Return the document. The operations of a tag have the order of the table of routes."""
    rows = [(PREFIX, route) for route in ROUTES] + [("", route) for route in AT_ROOT]
    references, schemas = _schemas(route for _, route in rows)
    examples = Examples.read()
    paths: dict[str, Schema] = {}
    for prefix, route in rows:
        operation = _operation(route, references, schemas)
        examples.add_to(route.operation_id, operation)
        paths.setdefault(prefix + route.path, {})[route.method.lower()] = operation
    for route in (route for _, route in rows):
        schemas.pop(route.query_model.__name__, None)
    schemas["Problem"]["properties"]["code"]["enum"] = list(ERROR_CODES)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Poolkeeper", "version": version("poolkeeper-server"), "description": DESCRIPTION},
        "tags": [{"name": name, "description": text} for name, text in _tags(route for _, route in rows)],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "examples": examples.problems,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _tags(routes: Iterable[Route]) -> list[tuple[str, str]]:
    """Return each tag with the first line of the docstring of its module: those of FIRST_TAGS, then the others."""
    tags = {route.tag: (inspect.getdoc(inspect.getmodule(route.handler)) or "").partition("\n")[0] for route in routes}
    return sorted(tags.items(), key=lambda tag: FIRST_TAGS.index(tag[0]) if tag[0] in FIRST_TAGS else len(FIRST_TAGS))


def _schemas(routes: Iterable[Route]) -> tuple[References, dict[str, Schema]]:
    """Return the references by model and mode, and the schemas by name, of all models of the routes."""
    models: dict[tuple[type[BaseModel], Mode], None] = {(Problem, "serialization"): None}
    for route in routes:
        models[(route.query_model, "validation")] = None
        if route.body_model:
            models[(route.body_model, "validation")] = None
        if route.response_model:
            models[(route.response_model, "serialization")] = None
    references, definitions = models_json_schema(list(models), by_alias=True, ref_template=REFERENCE_TEMPLATE)
    return references, _close_maps(definitions["$defs"])


def _close_maps(schema: Any) -> Any:
    """Return the schema with closed maps: pydantic writes the pattern of the keys, but does not forbid other keys."""
    if isinstance(schema, list):
        return [_close_maps(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closing = {"additionalProperties": False} if "patternProperties" in schema else {}
    return {name: _close_maps(part) for name, part in schema.items()} | closing


def _operation(route: Route, references: References, schemas: dict[str, Schema]) -> Schema:
    docstring = inspect.getdoc(route.handler) or ""
    summary, _, more = docstring.partition("\n")
    operation: Schema = {
        "operationId": route.operation_id,
        "tags": [route.tag],
        "summary": summary.split(". ")[0].rstrip("."),
        "description": " ".join(f"{summary} {more}".split())
        + (f" Permission: `{route.permission}`, of {role_words(roles_with(route.permission))}." if route.permission else ""),
        "parameters": [*_in_path(route), *_in_query(schemas[route.query_model.__name__]), *_in_headers(route)],
        "responses": {str(status): _success(route, status, references) for status in route.success_statuses}
        | {str(status): _failure(status, references) for status in route.failure_statuses},
    }
    if route.permission:
        operation["security"] = SECURITY
    if route.body_model:
        body = {"application/json": {"schema": references[(route.body_model, "validation")]}}
        operation["requestBody"] = {"required": not route.is_body_optional, "content": body}
    return operation


def _in_path(route: Route) -> list[Schema]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": PATH_PARAMETERS[name],
            "schema": {"type": "string", "pattern": path_pattern(name)},
        }
        for name in route.path_names
    ]


def _in_query(schema: Schema) -> list[Schema]:
    parameters = []
    for name, field in schema.get("properties", {}).items():
        field = {key: value for key, value in field.items() if key != "title"}
        parameter = {"name": name, "in": "query", "required": False, "schema": _parameter_schema(field)}
        parameter |= {"description": field["description"]} if "description" in field else {}
        parameters.append(parameter)
    return parameters


def _parameter_schema(schema: Schema) -> Schema:
    """Return the schema of a query parameter without null: in a query string, null is an absent parameter."""
    choices = [choice for choice in schema.get("anyOf", []) if choice.get("type") != "null"]
    if len(choices) != 1:
        return {key: value for key, value in schema.items() if key != "description"}
    choice: Schema = choices[0]
    return choice


def _in_headers(route: Route) -> list[Schema]:
    names = [*route.request_headers, *(["Poolkeeper-Workspace"] if route.permission and route.has_workspace else [])]
    return [{"name": name, "in": "header", "required": False, **HEADERS[name]} for name in names]


def _success(route: Route, status: int, references: References) -> Schema:
    response: Schema = {"description": HTTPStatus(status).phrase}
    if status != 204:
        content = (
            {"schema": references[(route.response_model, "serialization")]}
            if route.response_model
            else {"schema": {"type": "string"}}
        )
        response["content"] = {
            media_type: {"schema": {"type": "string"}} if media_type == EVENT_STREAM else content
            for media_type in route.media_types
        }
    return response


def _failure(status: int, references: References) -> Schema:
    problem = {PROBLEM_TYPE: {"schema": references[(Problem, "serialization")]}}
    response: Schema = {"description": HTTPStatus(status).phrase, "content": problem}
    return response | ({"headers": RETRY_AFTER} if status in (429, 503) else {})
