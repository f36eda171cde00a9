"""The recorded examples of the API: bodies and answers of each operation."""

from __future__ import annotations

from functools import cache
from typing import Any

from app.api.openapi_examples import Examples


@cache
def examples() -> Examples:
    """Return the recorded examples."""
    return Examples.read()


def first_response(operation: str) -> Any:
    """Return the body of the first answer of an operation; None if it has none."""
    return next(iter(examples().operations[operation].get("responses", {}).values()), None)
