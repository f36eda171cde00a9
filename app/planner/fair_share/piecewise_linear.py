"""Piecewise linear functions from a level to one value per key: their sum, and the answer of an account to an offer.

A function has two parts of equal length: the levels of its points, and per key a column of values. Levels and values never
fall. A level that occurs twice is a jump, and at a jump the lower value counts. All numbers are whole. Numbers that are very
close count as equal, because a rounding error must not separate two jumps at the same level.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, groupby, pairwise
from operator import sub
from typing import TypeAlias

Numbers: TypeAlias = list[int]
"""One number for each point."""

TOLERANCE = 1 << 20
"""The difference up to which two numbers are equal. A rounding error is at most 1."""


@dataclass(slots=True)
class Polyline:
    """The amounts that an account takes at its own level."""

    levels: Numbers
    columns: list[Numbers]


@dataclass(slots=True)
class Curve:
    """The amounts that an account takes for an offer, and its own level for that offer.

    After `stretch`, `offers` are levels of the parent.
    """

    offers: Numbers
    levels: Numbers
    columns: list[Numbers]
    begins_after: bool = False
    """True if the first point lies just behind a jump of the account's own function."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A point of a curve. `after`: the level is a jump, and the value behind it counts."""

    level: int
    values: tuple[int, ...]
    after: bool = False


def evaluate(curve: Curve, level: int, after: bool = False) -> CurvePoint:
    """Return the point of a curve at a level of the parent, or just behind it."""
    offers = curve.offers
    if after:
        index = max(0, bisect_right(offers, level) - 1)
        if index + 1 == len(offers) or offers[index] >= level:
            return _point(curve, index, after)
        index += 1
    else:
        index = bisect_left(offers, level)
        if index == len(offers):
            return _point(curve, index - 1)
        if index == 0 or offers[index] == level:
            return _point(curve, index)
    before = index - 1
    part, whole = level - offers[before], offers[index] - offers[before]
    values = tuple(column[before] + (column[index] - column[before]) * part // whole for column in curve.columns)
    return CurvePoint(curve.levels[before] + (curve.levels[index] - curve.levels[before]) * part // whole, values)


def _point(curve: Curve, index: int, after: bool = False) -> CurvePoint:
    values = tuple(column[index] for column in curve.columns)
    if index == 0:
        behind = curve.begins_after
    else:
        jumped = curve.levels[index] == curve.levels[index - 1]
        behind = after and jumped and any(column[index] != column[index - 1] for column in curve.columns)
    return CurvePoint(curve.levels[index], values, behind)


# The function of an account


def leaf_polyline(usage: Sequence[int], demand: Sequence[int], scale: int) -> Polyline:
    """Return the function of a leaf: all keys rise alike until each reaches its usage, then straight to the whole demand."""
    steps = sorted({0, *usage})
    columns = [[min(used, step) for step in steps] for used in usage]
    if demand != usage:
        steps.append(steps[-1] + scale)
        for column, demand_units in zip(columns, demand, strict=True):
            column.append(demand_units)
    return Polyline(steps, columns)


def add_curves(curves: Sequence[Curve], top: int, width: int) -> Polyline:
    """Return the sum of curves over the same levels, up to the level `top`."""
    places = [level for curve in curves for level in curve.offers]
    order = sorted(range(len(places)), key=places.__getitem__)
    jumps = {here for curve in curves for here, there in pairwise(curve.offers) if here == there}
    levels: Numbers = []
    counts: Numbers = []  # for each level: the number of curve points up to it; before a jump, without those at the jump
    for level, group in groupby(order, key=places.__getitem__):
        count = counts[-1] if counts else 0
        if level in jumps:
            levels.append(level)
            counts.append(count)
        levels.append(level)
        counts.append(count + sum(1 for _ in group))
    if levels[-1] < top:
        levels.append(top)
        counts.append(len(order))
    return Polyline(
        levels,
        [_add_columns([(curve.offers, curve.columns[key]) for curve in curves], order, levels, counts) for key in range(width)],
    )


def _add_columns(lines: Sequence[tuple[Numbers, Numbers]], order: Sequence[int], levels: Numbers, counts: Numbers) -> Numbers:
    """Return one key of a sum. At each of its points a curve continues as another straight line; these lines are added.

    A line is its rise per level and its value at level 0. Both have so many fractional bits that all rounding errors together
    are less than half of 1.
    """
    fraction = levels[-1].bit_length() + 24
    rises: Numbers = []
    bases: Numbers = []
    for offers, column in lines:
        rise = [
            ((there - here) << fraction) // (end - begin) if end > begin else 0
            for (here, there), (begin, end) in zip(pairwise(column), pairwise(offers), strict=True)
        ]
        rise.append(0)
        base = [(value << fraction) - steep * level for value, steep, level in zip(column, rise, offers, strict=True)]
        rises += map(sub, rise, [0, *rise])
        bases += map(sub, base, [0, *base])
    rise_to = list(accumulate((rises[index] for index in order), initial=0))
    base_to = list(accumulate((bases[index] for index in order), initial=0))
    half = 1 << fraction - 1
    return [base_to[count] + rise_to[count] * level + half >> fraction for level, count in zip(levels, counts, strict=True)]


def concatenate_curves(curves: Sequence[Curve], top: int, width: int) -> Polyline:
    """Return the curves one after the other: later curves where they begin, earlier curves where they end."""
    levels: Numbers = [0]
    columns = [[sum(curve.columns[key][0] for curve in curves)] for key in range(width)]
    for curve in curves:
        levels.extend(curve.offers)
        for key, column in enumerate(columns):
            own = curve.columns[key]
            base = column[-1] - own[0]
            column.extend([base + value for value in own] if base else own)
    levels.append(top)
    for column in columns:
        column.append(column[-1])
    return Polyline(levels, columns)


# The answer of an account to an offer


def offer_curve(own: Polyline, guarantee: Sequence[int], limit: Sequence[int], scale: int) -> Curve:
    """Return the amounts that an account takes for each offer on top of its guarantee, from nothing to the whole, within its
    limit."""
    ends = [(column[0], min(column[-1], max(column[0], most))) for column, most in zip(own.columns, limit, strict=True)]
    levels, columns = _stop_at_limit(own, [most for _, most in ends])
    assured = [min(most, max(least, guaranteed)) for (least, most), guaranteed in zip(ends, guarantee, strict=True)]
    lines = [[value - guaranteed for value in column] for column, guaranteed in zip(columns, assured, strict=True)]
    offers = [offer if offer > TOLERANCE else 0 for offer in map(max, *lines, [0] * len(levels))]
    end = bisect_left(offers, scale - TOLERANCE) + 1
    curve = Curve(offers[:end], levels[:end], [column[:end] for column in columns])
    _add_bends(curve, [line[:end] for line in lines])
    _cut_at_whole(curve, scale)
    return curve


def stretch(curve: Curve, part: int, whole: int, begin: int = 0) -> None:
    """Turn the offers of a curve into levels of the parent: `part` of the `whole` of an offer, counted from `begin`."""
    curve.offers = [(offer * part + whole // 2) // whole + begin for offer in curve.offers]


def align(curves: Sequence[Curve]) -> None:
    """Make levels of siblings equal that differ only by rounding, and remove the points inside a jump."""
    levels = sorted({level for curve in curves for level in curve.offers})
    same: dict[int, int] = {}
    for level, after in pairwise(levels):
        if after - level <= TOLERANCE:
            same[after] = same.get(level, level)
    for curve in curves:
        if same:
            curve.offers = [same.get(level, level) for level in curve.offers]
        _drop_duplicate_points(curve)


def _drop_duplicate_points(curve: Curve) -> None:
    """Remove all points of one level but the first and the last. At the lowest level only the last point is kept: the most that
    an account takes without an offer."""
    offers = curve.offers
    first, last = bisect_right(offers, offers[0]) - 1, len(offers) - 1
    indexes = [
        index
        for index in range(first, last + 1)
        if index in (first, last) or offers[index - 1] != offers[index] or offers[index] != offers[index + 1]
    ]
    if len(indexes) <= last:
        curve.begins_after = first > 0 and curve.levels[first] == curve.levels[first - 1]
        curve.offers, curve.levels = [offers[index] for index in indexes], [curve.levels[index] for index in indexes]
        curve.columns = [[column[index] for index in indexes] for column in curve.columns]


def _stop_at_limit(own: Polyline, most: Sequence[int]) -> tuple[Numbers, list[Numbers]]:
    """Return the function of an account up to the level at which it would exceed its limit on some key."""
    end = min(bisect_right(column, top) for column, top in zip(own.columns, most, strict=True))
    if end == len(own.levels):
        return own.levels, own.columns
    levels = own.levels[:end]
    columns = [column[:end] for column in own.columns]
    rises = [
        (top - column[end - 1], column[end] - column[end - 1])
        for column, top in zip(own.columns, most, strict=True)
        if column[end] > top
    ]
    if own.levels[end] == levels[-1]:
        return levels, columns
    if any(left <= TOLERANCE for left, _ in rises):
        if end > 1 and levels[-1] == levels[-2]:  # just behind a jump, where only the lower value counts
            for column in (levels, *columns):
                del column[-1]
        return levels, columns
    part, whole = rises[0]
    for left, rise in rises:
        if left * whole < part * rise:
            part, whole = left, rise
    for column, ending in zip((levels, *columns), (own.levels, *own.columns), strict=True):
        column.append(column[-1] + (ending[end] - column[-1]) * part // whole)
    return levels, columns


def _add_bends(curve: Curve, lines: Sequence[Numbers]) -> None:
    """Add the points at which another key becomes the dominant key."""
    offers, levels = curve.offers, curve.levels
    marks = [0] * len(offers)
    for bit, line in enumerate([[0] * len(offers), *lines]):
        marks = [mark | (offer - value <= TOLERANCE) << bit for mark, offer, value in zip(marks, offers, line, strict=True)]
    bends = [
        index
        for index in range(len(offers) - 1)
        if not marks[index] & marks[index + 1] or (levels[index] == levels[index + 1] and offers[index] != offers[index + 1])
    ]
    for index in reversed(bends):
        if levels[index] == levels[index + 1]:
            offers.insert(index + 1, offers[index + 1])
            for column in (levels, *curve.columns):
                column.insert(index + 1, column[index])
        else:
            parts = _crossings([(0, 0), *((line[index], line[index + 1]) for line in lines)])
            for column in (levels, *curve.columns):
                low, high = column[index], column[index + 1]
                column[index + 1 : index + 1] = [low + (high - low) * part // whole for part, whole in parts]
            offers[index + 1 : index + 1] = [
                max(0, *(line[index] + (line[index + 1] - line[index]) * part // whole for line in lines))
                for part, whole in parts
            ]


def _cut_at_whole(curve: Curve, scale: int) -> None:
    """End the curve at the offer of the whole."""
    offers, levels = curve.offers, curve.levels
    end = bisect_left(offers, scale - TOLERANCE)
    if end == len(offers):
        return
    for column in (offers, levels, *curve.columns):
        del column[end + 1 :]
    if offers[end] > scale:
        part, whole = scale - offers[end - 1], offers[end] - offers[end - 1]
        for column in (levels, *curve.columns):
            column[end] = column[end - 1] + (column[end] - column[end - 1]) * part // whole
    offers[end] = scale


def _crossings(ends: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of the interval at which another of these straight lines becomes the highest."""
    low, high = max(ends, key=lambda line: (line[0], line[1] - line[0]))
    parts: list[tuple[int, int]] = []
    while True:
        steeper = [
            (low - start, (end - start) - (high - low), start, end)
            for start, end in ends
            if end - start > high - low and end > high
        ]
        if not steeper:
            return parts
        part, whole, *line = min(steeper, key=lambda crossing: (Fraction(crossing[0], crossing[1]), -crossing[1]))
        parts.append((part, whole))
        low, high = line
