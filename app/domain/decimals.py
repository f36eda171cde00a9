"""Decimals such as 0.8: kept, compared and returned as they were written, exact to six places."""

from __future__ import annotations

from decimal import Decimal

MAX_PLACES = 6
"""The most places behind the point."""


def require_exact(number: float) -> float:
    """Return the number, as an int if it is whole. Raise ValueError if it has more than MAX_PLACES places."""
    places = Decimal(repr(number)).normalize().as_tuple().exponent
    if not isinstance(places, int) or places < -MAX_PLACES:
        raise ValueError(f"must have at most {MAX_PLACES} decimal places")
    return int(number) if number == int(number) else number


def encode(number: float) -> str:
    """Return the shortest text of a number, without an exponent: `0.8`, `1`, `0.000001`."""
    return format(Decimal(repr(number)).normalize(), "f")


def decode(text: str) -> float:
    """Return the number of a text that `encode` wrote."""
    return int(text) if text.isdigit() else float(text)
