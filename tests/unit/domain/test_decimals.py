"""Decimals: a written number is read as the same number, its text is the shortest, and none has an exponent."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import decimals


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.8, "0.8"), (1, "1"), (1.0, "1"), (0, "0"), (1e-6, "0.000001"), (10, "10"), (2.50, "2.5")],
)
def test_the_shortest_text(number: float, text: str) -> None:
    assert decimals.encode(number) == text


@pytest.mark.parametrize("number", [1e-7, 0.1234567, 0.30000000000000004, 5e-324])
def test_more_places_than_are_kept(number: float) -> None:
    with pytest.raises(ValueError, match="must have at most 6 decimal places"):
        decimals.require_exact(number)


@given(st.integers(0, 10 * 10**decimals.MAX_PLACES))
def test_six_places_come_back_exactly(millionths: int) -> None:
    number = decimals.require_exact(millionths / 10**decimals.MAX_PLACES)
    text = decimals.encode(number)
    assert re.fullmatch(r"[0-9]+(\.[0-9]*[1-9])?", text)
    assert decimals.decode(text) == number == millionths / 10**decimals.MAX_PLACES
    assert type(decimals.decode(text)) is type(number)
    assert isinstance(number, int) == (millionths % 10**decimals.MAX_PLACES == 0)
