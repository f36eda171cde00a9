"""How a node stands to its fair share. Shares are tuples aligned to the keys of a division, in 1/scale of the capacity."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from app.planner.fair_share.inputs import Share
from app.planner.fair_share.water_filling import Node

EQUAL = 10**9
"""Shares that differ by less than one in so many are the same."""

COVERED = 10**4
"""A fair share that lacks less than one in so many of the demand covers it."""


def blocked(fair: Share, demand: Share, scale: int) -> tuple[bool, ...]:
    """On which keys nothing more is due: the fair share is the demand."""
    slack = scale // EQUAL
    return tuple(due + slack >= wanted for due, wanted in zip(fair, demand, strict=True))


def beats(one: Sequence[int], other: Sequence[int], blocked: Sequence[bool]) -> bool:
    """Whether one is more than the other on every key that is not blocked; if all are blocked, on any."""
    more = [mine > theirs for mine, theirs in zip(one, other, strict=True)]
    if all(blocked):
        return any(more)
    return all(ahead for ahead, shut in zip(more, blocked, strict=True) if not shut)


def covers(fair: Share, demand: Share, scale: int) -> bool:
    """Whether the fair share is, but for a trifle, all that is wanted."""
    slack = scale // COVERED
    return all(due + slack >= wanted for due, wanted in zip(fair, demand, strict=True))


def satisfaction(node: Node, scale: int) -> Fraction | None:
    """How much of its fair share a leaf has, the lower the sooner it is served; None is infinite."""
    slack = scale // EQUAL
    if all(due <= slack for due in node.fair):
        return None
    pairs = list(zip(node.usage, node.fair, strict=True))
    if any(used > due + slack for used, due in pairs):
        if any(used > slack and not due for used, due in pairs):
            return None
        return max(Fraction(used, due) for used, due in pairs if due)
    shut = blocked(node.fair, node.demand, scale)
    if all(shut):
        return min(Fraction(used, due) for used, due in pairs if due > slack)
    return max(
        (Fraction(used, due) for (used, due), no in zip(pairs, shut, strict=True) if due and not no), default=Fraction(0)
    )


def is_below(node: Node, tolerance: Fraction, scale: int, is_leaf: bool) -> bool:
    """Whether it has less than it is due; of a leaf whose fair share covers its demand every bit of it counts."""
    if is_leaf and covers(node.fair, node.demand, scale):
        tolerance = max(tolerance, Fraction(1))
    slack = scale // EQUAL
    due = [
        min(fair * tolerance.numerator // tolerance.denominator, wanted) - slack
        for fair, wanted in zip(node.fair, node.demand, strict=True)
    ]
    return beats(due, node.usage, blocked(node.fair, node.demand, scale))
