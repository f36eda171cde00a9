"""The JSON schema of the pools file, for editors: the schema of the declaration, with the shorthands that a file may use.

`make generated` writes it to `config/pools.schema.json`, and the API serves it. It is draft 7, which editors read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from app.domain.declaration import Declaration
from app.domain.pool_settings import SETTINGS

AMOUNTS: Final = ("capacity", "reserved", "limit", "non_preemptible_usage_threshold")
"""The fields whose amounts may be one text."""
AMOUNT_PATTERN: Final = r" *[a-z][a-z0-9_.-]{0,62} *= *[0-9]{1,16} *"
DURATION_PATTERN: Final = r"([0-9]{1,9}d)?([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s?)?"

DRAFT: Final = "http://json-schema.org/draft-07/schema#"
AMOUNTS_TEXT: Final = {
    "type": "string",
    "pattern": f"^{AMOUNT_PATTERN}(,{AMOUNT_PATTERN})*$",
    "description": "As on the command line: gpu=8,mcpu=64000.",
}
DURATION_TEXT: Final = {
    "type": "string",
    "pattern": f"^{DURATION_PATTERN}$",
    "minLength": 1,
    "description": "As on the command line: 90s, 15m, 2h, 1h30m.",
}
NONE_TEXT: Final = {"enum": ["none"], "description": "The same as null."}


def pools_file_schema() -> dict[str, Any]:
    """Return the schema of a pools file."""
    schema = Declaration.model_json_schema(ref_template="#/definitions/{model}")
    for each in _schemas(schema):
        each.pop("title", None)
        if "patternProperties" in each:
            each["additionalProperties"] = False
        if isinstance(each.get("default"), dict | list):
            del each["default"]
    definitions = schema.pop("$defs")
    for definition in definitions.values():
        _add_shorthands(definition["properties"])
    return {"$schema": DRAFT, "title": "Pools of Poolkeeper", **schema, "required": ["pools"], "definitions": definitions}


def _add_shorthands(properties: dict[str, Any]) -> None:
    """Allow amounts and durations as texts, and `none` for a setting that may be null."""
    for name, field in properties.items():
        texts: list[dict[str, Any]] = [AMOUNTS_TEXT] if name in AMOUNTS else []
        if name in SETTINGS:
            is_nullable = name in AMOUNTS or {"type": "null"} in field.get("anyOf", ())
            texts += [DURATION_TEXT] if name.endswith("_s") else []
            texts += [NONE_TEXT] if is_nullable else []
        if texts:
            about = {key: field.pop(key) for key in ("description", "default", "examples") if key in field}
            properties[name] = {**about, "anyOf": [*field.get("anyOf", [field]), *texts]}


def _schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a schema and every schema inside it."""
    yield schema
    for table in ("$defs", "properties", "patternProperties"):
        for inner in schema.get(table, {}).values():
            yield from _schemas(inner)
    inner_schemas = [*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else [])]
    for inner in inner_schemas:
        yield from _schemas(inner)
