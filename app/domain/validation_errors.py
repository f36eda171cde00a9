"""The texts of validation errors of the inputs: one sentence for each field, without the library's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from app.domain.field_suggestions import suggest_field
from app.domain.names import PATTERN_TEXTS

MAX_FIELD_ERRORS = 20
"""The most field errors that are listed for one input."""
MAX_COUNTED_ERRORS = 1000
"""The most field errors for which each is worded. The library words all of them or none, so more would take too long."""


def field_errors(error: ValidationError, model: type[BaseModel] | None = None) -> list[tuple[str, str]]:
    """Return each fault as (field, reason), with a dotted field: `("resources.gpu", "must be a whole number")`.

    With the model that was validated, the reason of an unknown field names the similar field.
    """
    if error.error_count() > MAX_COUNTED_ERRORS:
        return [("", f"has {error.error_count()} faults, too many to list")]
    faults = error.errors(include_url=False, include_input=False)
    return [(_field_name(fault["loc"]), _error_text(fault, model)) for fault in faults[:MAX_FIELD_ERRORS]]


_ERROR_TEXTS = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be an object",
    "enum": "must be {expected}",
    "extra_forbidden": "is not a field here",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "int_type": "must be a whole number",
    "json_invalid": "is not JSON: {error}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "missing": "is required",
    "model_type": "must be an object",
    "string_too_short": "must have at least {min_length} character",
    "string_too_long": "must have at most {max_length} characters",
    "string_type": "must be a text",
    "string_unicode": "must be valid Unicode",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have at least {min_length} entry",
    "value_error": "{error}",
}


def _field_name(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part)[:64] for part in location if part != "[key]")


def _error_text(fault: Mapping[str, Any], model: type[BaseModel] | None) -> str:
    context = fault.get("ctx", {})
    if fault["type"] == "extra_forbidden" and model is not None and (similar := suggest_field(model, fault["loc"])):
        return f"is not a field here; did you mean {similar}?"
    if fault["type"] == "string_pattern_mismatch":
        return PATTERN_TEXTS.get(context["pattern"], f"must match {context['pattern']}")
    reason = _ERROR_TEXTS.get(fault["type"])
    bounds = {name: int(of) if isinstance(of, float) and of.is_integer() else of for name, of in context.items()}
    return str(fault["msg"]) if reason is None else reason.format(**bounds)
