"""A page of the HTTP reference: its routes, and the objects that they take and answer."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from app.api.body_limits import SMALL_BODY
from app.api.openapi_examples import REFERENCE as EXAMPLE
from app.api.routing import EVENT_STREAM, Route
from app.domain.pool_settings import SETTINGS
from tests.support.doc_pages import anchor_of
from tests.support.reference_pages.http_topics import (
    LinkFrom,
    Operation,
    Topic,
    base_of,
    body_name,
    heading,
    operations_of,
    places,
    response_names,
)
from tests.support.reference_pages.json_schema import (
    Link,
    Schema,
    body_table,
    document,
    field_table,
    schema_of,
    title_of,
    type_text,
)
from tests.support.reference_pages.markdown import block, code, codes, first_sentence, json_text, page, table
from tests.support.reference_pages.recorded_examples import examples

MANY_FIELDS = 10
"""An object of an example with at least so many fields is shown without those that are null or empty."""
GENERAL = {400, 401, 403, 404, 413, 415, 429, 503}
"""Statuses whose usual codes are the same for every route."""


def topic_page(topic: Topic) -> str:
    """Return the page."""
    link = LinkFrom(topic)
    rows = operations_of(topic)
    objects = _described_here(topic)
    return page(
        topic.title,
        f"{topic.purpose} [HTTP API](../http.md) describes what all routes have in common. "
        "Examples of long objects leave out fields that are null or empty, and settings with their default.",
        "app/api/routes.py, app/api/schemas and app/api/examples.json",
        table(["route", "permission", "for"], (_index_row(route) for route, _, _ in rows)),
        *(part for row in rows for part in _route(row, link)),
        *(["## Objects"] if objects else []),
        *(_object(name, link) for name in objects),
    )


def _index_row(route: Route) -> list[str]:
    return [f"[`{heading(route)}`](#{anchor_of(heading(route))})", permission_of(route), summary(route)]


def summary(route: Route) -> str:
    """Return the first sentence of the description of a route."""
    return first_sentence(description(route))


def description(route: Route) -> str:
    """Return the description of a route, in one line."""
    return " ".join((inspect.getdoc(route.handler) or "").split())


def permission_of(route: Route) -> str:
    """Return the permission, as the tables have it."""
    return code(route.permission) if route.permission else "none"


def _route(row: Operation, link: Link) -> Iterator[str]:
    route, path, operation = row
    yield f"## {heading(route)}"
    yield description(route)
    yield " ".join(_facts(route))
    yield _queries(operation, link)
    if body := body_name(operation):
        place = f"#{anchor_of(heading(route))}"
        if places()[body].endswith(place):
            yield "Body:"
            yield body_table(schema_of(body), link)
        else:
            yield f"Body: {link(body)}."
    yield _answers(operation, link)
    yield _example(route, path, operation)
    yield _refusals(operation)


def _facts(route: Route) -> Iterator[str]:
    yield f"Permission: {permission_of(route)}."
    if route.request_headers:
        yield f"Header: {codes(route.request_headers)}."
    if route.body_model and route.body_limit != SMALL_BODY:
        yield "The body may be [larger](../http.md#limits) than that of other routes."


def _queries(operation: Schema, link: Link) -> str:
    parameters = [parameter for parameter in operation["parameters"] if parameter["in"] == "query"]
    return table(
        ["query", "type", "default", "meaning"],
        (
            [code(row["name"]), type_text(row["schema"], link), _default(row["schema"]), row.get("description", "")]
            for row in parameters
        ),
    )


def _default(schema: Schema) -> str:
    value = schema.get("default")
    if isinstance(value, bool):
        return code(str(value).lower())
    return code(str(value)) if value not in (None, []) else ""


def _answers(operation: Schema, link: Link) -> str:
    statuses = [status for status in operation["responses"] if status < "300"]
    names = response_names(operation)
    kinds = " or ".join(link(name) for name in names) or ("no body" if statuses == ["204"] else "text")
    return f"Answer: {' or '.join(statuses)}, {kinds}."


def _example(route: Route, path: str, operation: Schema) -> str:
    recorded = examples().operations[route.operation_id]
    filled = re.sub(r"{(\w+)}", lambda name: str(recorded["path"][name[1]]), path)
    parts = [f"{route.method} {filled}"]
    if "request" in recorded and body_name(operation):
        parts.append(json_text(recorded["request"]))
    status = min(status for status in operation["responses"] if status < "300")
    parts += ["", f"{status} {HTTPStatus(int(status)).phrase}"]
    answer: Any = recorded.get("responses", {}).get(status)
    if EVENT_STREAM in route.media_types:
        answer = recorded["stream"]
    if route.method == "GET" and isinstance(answer, dict) and isinstance(answer.get("items"), list):
        answer = {**answer, "items": answer["items"][:1]}
    if answer is not None:
        parts.append(_shortened(answer) if isinstance(answer, str) else json_text(_without_blanks(answer)))
    return block("http", "\n".join(parts))


def _without_blanks(value: Any) -> Any:
    """Return an answer without the fields of long objects that are null, empty, or settings with their default."""
    if isinstance(value, list):
        return [_without_blanks(part) for part in value]
    if not isinstance(value, dict):
        return value
    kept = {name: _without_blanks(part) for name, part in value.items()}
    if len(kept) < MANY_FIELDS:
        return kept
    if kept.keys() >= SETTINGS.keys():
        kept = {name: part for name, part in kept.items() if part != SETTINGS[name].default}
    return {name: part for name, part in kept.items() if part not in (None, [], {})}


def _shortened(text: str) -> str:
    """Return a text whose long lines are cut."""
    return "\n".join(line if len(line) <= 110 else f"{line[:107]}…" for line in text.splitlines())


def _refusals(operation: Schema) -> str:
    """Return the refusals that not every route has; those of all routes stand on the page of errors."""
    found: dict[str, None] = {}
    for status, answer in operation["responses"].items():
        for content in answer.get("content", {}).values():
            for example in content.get("examples", {}).values():
                problem = document()["components"]["examples"][example["$ref"].removeprefix(EXAMPLE)]["value"]
                if int(status) not in GENERAL:
                    found[f"{status} `{problem['code']}`"] = None
    return f"Refusals: {', '.join(found)}, and [those of every route](../http.md#errors)." if found else ""


def _described_here(topic: Topic) -> list[str]:
    """Return the objects that a page describes below its routes."""
    return [name for name, place in places().items() if place == f"{topic.name}.md#{anchor_of(title_of(name))}"]


def _object(name: str, link: Link) -> str:
    schema = schema_of(name)
    text = " ".join(str(schema.get("description", "")).split())
    base = base_of(name)
    if base:
        inherited = schema_of(base)["properties"]
        schema = {**schema, "properties": {field: row for field, row in schema["properties"].items() if field not in inherited}}
        text += f" It has the fields of {link(base)}, and:"
    return f"### {title_of(name)}\n\n{text}\n\n" + (field_table if name.endswith("Response") else body_table)(schema, link)
