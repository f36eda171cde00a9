"""Decimals such as 0.8: what a person writes is what is kept, compared and answered, exact to six places."""

from __future__ import annotations

from decimal import Decimal

MAX_PLACES = 6
"""How many places behind the point are kept."""


def require_exact(number: float) -> float:
    """The number, a whole one without a point; ValueError if it has more places than are kept."""
    places = Decimal(repr(number)).normalize().as_tuple().exponent
    if not isinstance(places, int) or places < -MAX_PLACES:
        raise ValueError(f"must have at most {MAX_PLACES} decimal places")
    return int(number) if number == int(number) else number


def encode(number: float) -> str:
    """The shortest text of it, never with an exponent: `0.8`, `1`, `0.000001`."""
    return format(Decimal(repr(number)).normalize(), "f")


def decode(text: str) -> float:
    """The number that `encode` wrote."""
    return int(text) if text.isdigit() else float(text)
