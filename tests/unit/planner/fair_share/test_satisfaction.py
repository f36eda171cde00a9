"""The satisfaction of a node: its use compared with its fair share."""

from __future__ import annotations

from fractions import Fraction

import pytest

from app.planner.fair_share.satisfaction import covers_demand, demand_met, exceeds, is_below, satisfaction_ratio
from app.planner.fair_share.water_filling import AccountShares

SCALE = 10**12
WHOLE = (SCALE, SCALE)


def _share(*parts: float) -> tuple[int, ...]:
    return tuple(int(Fraction(str(part)) * SCALE) for part in parts)


def _node(fair: tuple[float, ...], usage: tuple[float, ...], demand: tuple[float, ...]) -> AccountShares:
    return AccountShares(_share(*fair), _share(*usage), _share(*demand), (0,) * len(fair), (SCALE,) * len(fair))


def test_a_key_is_blocked_when_all_that_is_wanted_of_it_is_due() -> None:
    assert demand_met(_share(0.5, 0.2, 0), _share(0.5, 0.3, 0), SCALE) == (True, False, True)


def test_a_key_is_blocked_but_for_rounding() -> None:
    assert demand_met((SCALE // 3,), (SCALE // 3 + SCALE // 10**9,), SCALE) == (True,)
    assert demand_met((SCALE // 3,), (SCALE // 3 + SCALE // 10**9 + 1,), SCALE) == (False,)


@pytest.mark.parametrize(
    ("left", "right", "keys_met", "expected"),
    [
        pytest.param((3, 3), (2, 2), (False, False), True, id="more of both"),
        pytest.param((3, 2), (2, 2), (False, False), False, id="as much of one"),
        pytest.param((3, 2), (2, 2), (False, True), True, id="as much of one that is blocked"),
        pytest.param((2, 3), (2, 2), (False, True), False, id="more of one that is blocked"),
        pytest.param((3, 1), (2, 2), (True, True), True, id="all blocked, more of one"),
        pytest.param((2, 1), (2, 2), (True, True), False, id="all blocked, more of none"),
    ],
)
def test_exceeds(left: tuple[int, ...], right: tuple[int, ...], keys_met: tuple[bool, ...], expected: bool) -> None:
    assert exceeds(left, right, keys_met) is expected


@pytest.mark.parametrize(
    ("fair", "usage", "demand", "expected"),
    [
        pytest.param((0, 0), (0, 0), (0, 0), None, id="nothing is due"),
        pytest.param((0, 0), (0.1, 0), (0.4, 0), None, id="nothing is due, yet it runs"),
        pytest.param((0.5, 0), (0.1, 0.1), (0.9, 0.1), None, id="it runs of a key of which nothing is due"),
        pytest.param((0.4, 0.2), (0.6, 0.1), (0.9, 0.9), 1.5, id="more runs than is due"),
        pytest.param((0.4, 0.2), (0.4, 0.05), (0.4, 0.2), 0.25, id="all is due: what is furthest behind counts"),
        pytest.param((0.4, 0), (0.1, 0), (0.4, 0), 0.25, id="all is due, and nothing of one key"),
        pytest.param((0.4, 0.2), (0.1, 0.1), (0.8, 0.4), 0.5, id="less is due than is wanted: what is nearest counts"),
        pytest.param((0.4, 0.2), (0.1, 0.2), (0.8, 0.2), 0.25, id="of a key that is blocked it may have all"),
        pytest.param((0.4, 0), (0.3, 0), (0.4, 0.2), 0, id="all that can be due is due, and it waits for what cannot"),
    ],
)
def test_satisfaction(
    fair: tuple[float, ...], usage: tuple[float, ...], demand: tuple[float, ...], expected: float | None
) -> None:
    ratio = satisfaction_ratio(_node(fair, usage, demand), SCALE)
    assert ratio == (None if expected is None else Fraction(str(expected)))


def test_what_runs_beyond_the_share_by_rounding_is_no_more() -> None:
    # Without this, the key furthest ahead would count, and not the one furthest behind.
    node = AccountShares((SCALE // 3, SCALE // 2), (SCALE // 3 + 1, 0), (SCALE // 3, SCALE // 2), (0, 0), WHOLE)
    assert satisfaction_ratio(node, SCALE) == 0


@pytest.mark.parametrize(
    ("fair", "usage", "demand", "is_leaf", "expected"),
    [
        pytest.param((0.5,), (0.3,), (0.9,), True, True, id="less than four fifths"),
        pytest.param((0.5,), (0.4,), (0.9,), True, False, id="four fifths"),
        pytest.param((0.5,), (0.4,), (0.5,), True, True, id="a leaf that is due all wants all"),
        pytest.param((0.5,), (0.5,), (0.5,), True, False, id="a leaf that has all"),
        pytest.param((0.5,), (0.4,), (0.5,), False, False, id="a group is content with four fifths"),
        pytest.param((0.5, 0.5), (0.1, 0.4), (0.9, 0.9), True, False, id="one key is enough to be content"),
        pytest.param((0.5, 0.5), (0.1, 0.4), (0.9, 0.5), True, True, id="unless no more is wanted of that one"),
        pytest.param((0, 0), (0, 0), (0, 0), True, False, id="no demand"),
        pytest.param((0,), (0,), (0.9,), True, False, id="no share"),
    ],
)
def test_below(
    fair: tuple[float, ...], usage: tuple[float, ...], demand: tuple[float, ...], is_leaf: bool, expected: bool
) -> None:
    assert is_below(_node(fair, usage, demand), Fraction(4, 5), SCALE, is_leaf) is expected


def test_a_leaf_is_due_all_but_for_a_trifle() -> None:
    just, less = SCALE // 2 - SCALE // 10**4, SCALE // 2 - SCALE // 10**4 - 1
    assert covers_demand((just,), (SCALE // 2,), SCALE)
    assert not covers_demand((less,), (SCALE // 2,), SCALE)
    for due, expected in ((just, True), (less, False)):
        node = AccountShares((due,), _share(0.45), _share(0.5), (0,), (SCALE,))
        assert is_below(node, Fraction(4, 5), SCALE, is_leaf=True) is expected


def test_a_share_that_is_met_but_for_rounding_is_not_below() -> None:
    node = AccountShares((SCALE // 3 + 1,), (SCALE // 3,), (SCALE,), (0,), (SCALE,))
    assert not is_below(node, Fraction(1), SCALE, is_leaf=True)
