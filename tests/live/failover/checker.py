"""The check of the clients' records, and of nothing else: units held twice at a moment, and fences given out twice."""

from __future__ import annotations

from collections.abc import Iterable

from tests.live.failover.holders import Holding


def overlaps(holdings: Iterable[Holding], capacity: int) -> list[str]:
    """Return a line for each moment at which more units were held than there are."""
    events = sorted(
        (moment, sign * holding.units, holding)
        for holding in holdings
        for moment, sign in ((holding.from_s, 1), (holding.to_s, -1))
        if holding.to_s > holding.from_s
    )
    held: list[Holding] = []
    lines, used = [], 0
    for moment, units, holding in events:
        used += units
        if units > 0:
            held.append(holding)
            if used > capacity:
                lines.append(f"{used} of {capacity} held at {moment:.3f} s: {held}")
        else:
            held.remove(holding)
    return lines


def fences_given_twice(holdings: Iterable[Holding]) -> list[str]:
    """Return a line for each fence under which more than one request held units."""
    holders: dict[int, set[str]] = {}
    for holding in holdings:
        holders.setdefault(holding.fence, set()).add(holding.request)
    return [f"fence {fence}: {sorted(requests)}" for fence, requests in holders.items() if len(requests) > 1]


def kept(holdings: Iterable[Holding]) -> list[Holding]:
    """Return what was surely not lost: what was lost is the case that the documentation names."""
    return [holding for holding in holdings if holding.end == "released"]
