"""An account compared with its fair share. Shares are tuples aligned to the keys of a division, in 1/scale of the capacity."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from app.planner.fair_share.inputs import Share
from app.planner.fair_share.water_filling import AccountShares

EQUAL_WITHIN = 10**9
"""The inverse of the relative difference below which two shares are equal."""

COVERED_WITHIN = 10**4
"""The inverse of the part of the demand that a fair share may lack and still count as covering the demand."""


def demand_met(fair: Share, demand: Share, scale: int) -> tuple[bool, ...]:
    """Return, per key, True if the fair share reaches the demand."""
    slack = scale // EQUAL_WITHIN
    return tuple(fair_units + slack >= demand_units for fair_units, demand_units in zip(fair, demand, strict=True))


def exceeds(left: Sequence[int], right: Sequence[int], keys_met: Sequence[bool]) -> bool:
    """True if the left share is larger on every key whose demand is not met; if all demand is met, on any key."""
    is_more_by_key = [left_units > right_units for left_units, right_units in zip(left, right, strict=True)]
    if all(keys_met):
        return any(is_more_by_key)
    return all(is_more for is_more, is_met in zip(is_more_by_key, keys_met, strict=True) if not is_met)


def covers_demand(fair: Share, demand: Share, scale: int) -> bool:
    """True if the fair share is almost the whole demand, on every key."""
    slack = scale // COVERED_WITHIN
    return all(fair_units + slack >= demand_units for fair_units, demand_units in zip(fair, demand, strict=True))


def satisfaction_ratio(account: AccountShares, scale: int) -> Fraction | None:
    """Return the part of its fair share that a leaf uses; the lowest is served first. None is infinite."""
    slack = scale // EQUAL_WITHIN
    if all(fair_units <= slack for fair_units in account.fair):
        return None
    pairs = list(zip(account.usage, account.fair, strict=True))
    if any(used > fair_units + slack for used, fair_units in pairs):
        if any(used > slack and not fair_units for used, fair_units in pairs):
            return None
        return max(Fraction(used, fair_units) for used, fair_units in pairs if fair_units)
    keys_met = demand_met(account.fair, account.demand, scale)
    if all(keys_met):
        return min(Fraction(used, fair_units) for used, fair_units in pairs if fair_units > slack)
    return max(
        (
            Fraction(used, fair_units)
            for (used, fair_units), is_met in zip(pairs, keys_met, strict=True)
            if fair_units and not is_met
        ),
        default=Fraction(0),
    )


def is_below(account: AccountShares, tolerance: Fraction, scale: int, is_leaf: bool) -> bool:
    """True if the account is below its fair share. For a leaf whose fair share covers its demand, no tolerance applies."""
    if is_leaf and covers_demand(account.fair, account.demand, scale):
        tolerance = max(tolerance, Fraction(1))
    slack = scale // EQUAL_WITHIN
    threshold = [
        min(fair_units * tolerance.numerator // tolerance.denominator, demand_units) - slack
        for fair_units, demand_units in zip(account.fair, account.demand, strict=True)
    ]
    return exceeds(threshold, account.usage, demand_met(account.fair, account.demand, scale))
