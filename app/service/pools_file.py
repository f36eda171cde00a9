"""The pools file: a declaration as YAML, read strictly and written.

A file may write amounts and settings like the options of the command line: `capacity: gpu=8`, `patience_s: 5m`, or `none`. The
command line reads its files by the same rules (`poolkeeper.cli.declaration_files`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml
from pydantic import ValidationError

from app.domain.declaration import Declaration
from app.domain.errors import RuleViolation
from app.domain.quota_validation import validate_quotas
from app.domain.validation_errors import field_errors
from app.service.pools_file_schema import AMOUNT_PATTERN, AMOUNTS, DURATION_PATTERN
from app.service.yaml_loader import InvalidYaml, line_of, load

_SECONDS: Final = {"d": 86_400, "h": 3600, "m": 60, "s": 1}


class InvalidDeclaration(ValueError):  # noqa: N818
    """A file that is not a declaration: one line for people and, if the file is YAML, each fault as (field, reason)."""

    def __init__(self, line: str, faults: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(line)
        self.faults = tuple(faults)


def read(text: str) -> Declaration:
    """Return the declaration of a YAML text. Raise InvalidDeclaration, with one line for people, if it is not one."""
    try:
        document = load(text)
        if not isinstance(document, Mapping) or (document and "pools" not in document):
            raise InvalidYaml(f"line 1: expected `pools:` with a list of pools, not {_kind(document)}")
        return Declaration.model_validate(_expand(document))
    except InvalidYaml as error:
        raise InvalidDeclaration(str(error)) from error
    except ValidationError as error:
        faults = field_errors(error, Declaration)
        field, reason = faults[0]
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        line = line_of(text, field.split("."))
        raise InvalidDeclaration(f"line {line}: {field or 'the file'}: {reason}{more}", faults) from error


def require_quotas(declaration: Declaration, text: str) -> None:
    """Raise InvalidDeclaration, with the line in the text, if the quotas of a declaration do not agree with each other."""
    try:
        validate_quotas(declaration)
    except RuleViolation as refusal:
        raise InvalidDeclaration(f"line {line_of(text, refusal.field.split('.'))}: {refusal}") from refusal


def write(declaration: Declaration) -> str:
    """Return the YAML text of a declaration, without fields that have their default. `read` returns the same declaration."""
    return yaml.safe_dump(declaration.model_dump(exclude_defaults=True), sort_keys=False, allow_unicode=True)


def _kind(document: object) -> str:
    if isinstance(document, Mapping):
        return ", ".join(f"`{name}`"[:66] for name in list(document)[:3])
    return {"NoneType": "an empty file", "list": "a list", "str": "a text"}.get(type(document).__name__, "a number")


def _expand(value: Any, field: str = "") -> Any:
    """Return a value in the form of the API. A text that is no shorthand stays, and the models check it."""
    if isinstance(value, list):
        return [_expand(item) for item in value]
    if isinstance(value, dict):
        return {
            name: _setting(name, item) if field == "settings" and isinstance(item, str) else _expand(item, str(name))
            for name, item in value.items()
        }
    return _amounts(value) if field in AMOUNTS and isinstance(value, str) else value


def _setting(name: object, text: str) -> Any:
    if name in AMOUNTS:
        return {} if text == "none" else _amounts(text)
    if text == "none":
        return None
    return _seconds(text) if str(name).endswith("_s") else text


def _amounts(text: str) -> Any:
    """Return `gpu=8,mcpu=64000` as amounts."""
    parts = text.split(",")
    if not all(re.fullmatch(AMOUNT_PATTERN, part) for part in parts):
        return text
    amounts = {key.strip(): int(units) for key, _, units in (part.partition("=") for part in parts)}
    return amounts if len(amounts) == len(parts) else text


def _seconds(text: str) -> Any:
    """Return `1h30m` as seconds."""
    if not text or not re.fullmatch(DURATION_PATTERN, text):
        return text
    return sum(int(count) * _SECONDS[unit or "s"] for count, unit in re.findall(r"([0-9]+)([dhms]?)", text))
