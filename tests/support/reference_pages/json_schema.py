"""Tables of the fields of an object, and types in words, from the schemas of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeAlias

from app.api import openapi
from app.domain.field_types import TEN_YEARS_S
from app.domain.queue_score import MAX_AMOUNT
from tests.support.reference_pages.markdown import codes, table

Schema: TypeAlias = dict[str, Any]
Link: TypeAlias = Callable[[str], str]
"""From the name of a schema to the text that stands for it, perhaps with a link."""
BOUNDLESS = (MAX_AMOUNT, TEN_YEARS_S)
"""Upper bounds that nothing reaches: the largest exact number, and ten years in seconds."""
REFERENCE = "#/components/schemas/"
SUFFIXES = ("Response", "Body", "Spec")
TITLES = {"SubmitResponse": "Submitted request", "BatchResponse": "Batch answer", "RequestSearchResponse": "Page of requests"}
"""Words for the schemas whose names do not say what they are."""
LONGEST_DEFAULT = 40
MANY_KINDS = 4


@cache
def document() -> Schema:
    """Return the OpenAPI document."""
    return openapi.document()


def schema_of(name: str) -> Schema:
    """Return the schema of this name."""
    schema: Schema = document()["components"]["schemas"][name]
    return schema


def title_of(name: str) -> str:
    """Return the words for a schema: its name without the suffix of its use."""
    if name in TITLES:
        return TITLES[name]
    suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix) and name != suffix), "")
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name.removesuffix(suffix))
    return words.strip().capitalize()


def body_table(schema: Schema, link: Link) -> str:
    """Return the table of the fields that a client sends."""
    required = set(schema.get("required", ()))
    return table(
        ["field", "type", "default", "meaning"],
        (
            [f"`{name}`", type_text(field, link), "required" if name in required else _default(field), _meaning(field)]
            for name, field in schema.get("properties", {}).items()
        ),
    )


def field_table(schema: Schema, link: Link) -> str:
    """Return the table of the fields of an answer."""
    return table(
        ["field", "type", "meaning"],
        ([f"`{name}`", type_text(field, link), _meaning(field)] for name, field in schema.get("properties", {}).items()),
    )


def _meaning(field: Schema) -> str:
    """Return the first paragraph of the description, as a row of a table has one line."""
    return str(field.get("description", "")).partition("\n\n")[0]


def _default(field: Schema) -> str:
    """Return the default; empty if there is none, or it is an object with defaults of its own."""
    value = field.get("default", "")
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value is None or value == "":
        return "null" if value is None else ""
    return f"`{value}`" if len(str(value)) <= LONGEST_DEFAULT else ""


def type_text(schema: Schema, link: Link) -> str:
    """Return the type of a value in words."""
    if "$ref" in schema:
        return link(schema["$ref"].removeprefix(REFERENCE))
    if "properties" in schema and schema.get("title") in document()["components"]["schemas"]:
        return link(schema["title"])  # pydantic writes out what it does not validate by itself
    if len(schema.get("allOf", ())) == 1:
        return type_text(schema["allOf"][0], link)
    if "anyOf" in schema:
        kinds = dict.fromkeys(type_text(part, link) for part in schema["anyOf"])
        return " or ".join(kinds) if len(kinds) <= MANY_KINDS else "value"
    if "const" in schema or "enum" in schema:
        return codes(schema.get("enum") or [schema["const"]])
    return _plain(schema, link)


def _plain(schema: Schema, link: Link) -> str:
    match schema.get("type"):
        case "array":
            return f"list of {type_text(schema.get('items', {}), link)}"
        case "object":
            return _map(schema, link)
        case "integer":
            return "whole number" + _bounds(schema)
        case "number":
            return "number" + _bounds(schema)
        case "string":
            return "time" if schema.get("format") == "date-time" else "text"
        case "boolean":
            return "true or false"
        case "null":
            return "null"
    return "any JSON"


def _bounds(schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if most is None or most in BOUNDLESS:
        return f" from {least:g}" if least else ""
    return f", {least or 0:g} to {most:,}"


def _map(schema: Schema, link: Link) -> str:
    values = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
    value = next((part for part in values if isinstance(part, dict)), None)
    return f"name → {type_text(value, link)}" if value else "object"


def references(schema: Any) -> Iterator[str]:
    """Yield the names of all schemas that this one mentions, in order."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].removeprefix(REFERENCE)
        for part in schema.values():
            yield from references(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from references(part)
