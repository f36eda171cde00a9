"""The checker of the clients' logs: what it must find, and what it must let pass."""

from __future__ import annotations

from typing import Literal

from tests.live.failover.checker import fences_given_twice, kept, overlaps
from tests.live.failover.holders import Holding


def holding(
    request: str, fence: int, units: int, from_s: float, to_s: float, end: Literal["released", "lost"] = "released"
) -> Holding:
    return Holding(request, fence, units, from_s, to_s, end)


def test_units_held_one_after_the_other_are_no_overlap() -> None:
    assert overlaps([holding("a", 1, 10, 0, 1), holding("b", 2, 6, 1, 2), holding("c", 3, 4, 1.5, 3)], 10) == []


def test_units_held_twice_at_a_moment_are_found() -> None:
    (line,) = overlaps([holding("a", 1, 10, 0, 1), holding("b", 2, 1, 0.9, 2)], 10)
    assert line.startswith("11 of 10 held at 0.900 s")


def test_a_fence_of_two_requests_is_found() -> None:
    both = [holding("a", 7, 1, 0, 1), holding("b", 7, 1, 5, 6), holding("a", 7, 1, 2, 3)]
    assert fences_given_twice(both) == ["fence 7: ['a', 'b']"]
    assert fences_given_twice([both[0], both[2]]) == []


def test_only_what_the_service_took_back_is_surely_kept() -> None:
    assert kept([holding("a", 1, 1, 0, 1), holding("b", 2, 1, 0, 1, "lost")]) == [holding("a", 1, 1, 0, 1)]
