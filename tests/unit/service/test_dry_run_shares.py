"""The part of a process's time that the dry runs of one token may take."""

from __future__ import annotations

import re

import pytest

from app.domain.dry_run import DRY_RUN_REASONS, DryRunUnavailable
from app.service.dry_run_shares import BURST_S, DryRunShares
from app.service.wait_slots import TokenShareUsed


class Clock:
    """A monotonic clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shares(clock: Clock) -> DryRunShares:
    """Return shares of a quarter."""
    return DryRunShares(25, clock)


def _run(shares: DryRunShares, clock: Clock, seconds: float, token: str | None = "a") -> None:
    with shares.turn(token):
        clock.now += seconds


def test_a_token_has_one_dry_run_at_a_time(shares: DryRunShares, clock: Clock) -> None:
    with shares.turn("a"), shares.turn("b"):
        with pytest.raises(TokenShareUsed, match="a dry run of this token is under way") as refused, shares.turn("a"):
            pass
        assert refused.value.retry_after_s == 1
    _run(shares, clock, 0.1)


def test_a_token_has_a_quarter_of_the_time_and_a_burst_before(shares: DryRunShares, clock: Clock) -> None:
    for _ in range(4):
        _run(shares, clock, BURST_S / 3)  # a quarter of it comes back meanwhile, so that 1 s too much is used
    with pytest.raises(TokenShareUsed, match="this token has used its share of the time for dry runs") as refused:
        _run(shares, clock, 1)
    assert refused.value.retry_after_s == 4
    clock.now += 4
    _run(shares, clock, 4)
    with pytest.raises(TokenShareUsed) as refused:
        _run(shares, clock, 1)
    assert refused.value.retry_after_s == 12
    clock.now += 12
    _run(shares, clock, 1)


def test_shares_of_tokens_are_apart_and_callers_without_one_have_the_whole(shares: DryRunShares, clock: Clock) -> None:
    _run(shares, clock, 10 * BURST_S)
    with pytest.raises(TokenShareUsed):
        _run(shares, clock, 1)
    _run(shares, clock, 1, "b")
    with shares.turn(None), shares.turn(None):
        clock.now += 10 * BURST_S
    _run(shares, clock, 1, None)


def test_a_wait_in_vain_does_not_count(shares: DryRunShares, clock: Clock) -> None:
    def run(reason: str) -> None:
        with shares.turn("a"):
            clock.now += 10 * BURST_S
            raise DryRunUnavailable(reason)

    for reason in ("busy", "busy", "late"):
        with pytest.raises(DryRunUnavailable, match=re.escape(DRY_RUN_REASONS[reason])):
            run(reason)
    with pytest.raises(TokenShareUsed):
        _run(shares, clock, 1)


def test_tokens_whose_share_is_whole_again_are_forgotten(shares: DryRunShares, clock: Clock) -> None:
    for number in range(1000):
        _run(shares, clock, 0.1, f"t{number}")
    assert shares.remembered() < 100
