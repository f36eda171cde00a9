"""Strict queueing in the planner: the first request that the capacity of the pool blocks keeps all others from preempting."""

from __future__ import annotations

from dataclasses import replace

from app.planner.decisions import DecisionReason
from app.planner.planning_pass import plan_pool
from tests.unit.planner.builders import PoolBuilder, a_pool


def strict(gpu: int) -> PoolBuilder:
    """Return a pool with strict queueing, in which requests of `high` may preempt those of `low`."""
    return a_pool(gpu=gpu).with_settings(queueing="strict").policy("low", priority=1).policy("high", priority=9)


def test_units_that_a_hold_still_expects_are_not_kept_from_the_first_of_the_line() -> None:
    pool = strict(5).runs("gone", "low", gpu=2, leaving_for="h").runs("v", "low", gpu=2)
    pool.holds("h", "high", gpu=2, queue_score=9)
    pool.waits("fits", "high", gpu=1, queue_score=1).waits("w", "high", gpu=3, queue_score=2)
    assert pool.victims() == {"v": "priority"}


def test_nothing_is_preempted_for_a_request_behind_the_first_of_the_line() -> None:
    snapshot = strict(2).runs("v", "low", gpu=2).waits("w", "high", gpu=2, queue_score=7).snapshot()
    assert plan_pool(replace(snapshot, first_blocked_score=7)).decisions["w"].reason is DecisionReason.FITS_THEN
    assert plan_pool(replace(snapshot, first_blocked_score=6)).decisions["w"].reason is DecisionReason.BEHIND
