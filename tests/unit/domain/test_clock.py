"""The manual clock, and the clock of Redis."""

from __future__ import annotations

import pytest

from app.domain.clock import Clock, ManualClock, RedisClock


def test_a_clock_moved_by_hand() -> None:
    clock = ManualClock(1_000)
    clock.advance(1.5)
    clock.advance(0)
    assert clock.now_ms() == 2_500
    with pytest.raises(ValueError, match="time does not go back"):
        clock.advance(-1)


def test_the_clock_of_redis_leaves_it_to_the_script() -> None:
    clock: Clock = RedisClock()
    assert clock.now_ms() is None
