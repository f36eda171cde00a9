"""The page of a request: what is left of its retries, and how it names itself and others."""

from __future__ import annotations

import pytest

from app.domain.plan_steps import Trigger
from tests.unit.dashboard.page_client import Desk


def preempt_times(desk: Desk, count: int, retries: int) -> str:
    """Return a request of `blue` that has left for one of `red` so many times."""
    desk.pool(gpu=1)
    desk.policy("red", reserved={"gpu": 1}, priority=5)
    desk.policy("blue")
    identifier = str(desk.submit("blue", gpu=1, retries=retries)["id"])
    for _ in range(count):
        waiter = desk.submit("red", gpu=1)["id"]
        allocation = desk.get(f"/requests/{identifier}").body
        desk.preempt(waiter, {"id": identifier, "fence": int(allocation["fence"])}, reason=Trigger.RECLAIM)
        desk.post(f"/requests/{identifier}/release", {"fence": allocation["fence"], "outcome": "vacated"})
        desk.delete(f"/requests/{waiter}")
    return identifier


@pytest.mark.parametrize(
    ("count", "retries", "text"),
    [
        (2, 3, "Preempted 2 times, 1 retry left"),
        (1, 3, "Preempted once, 2 retries left"),
        (2, 2, "Preempted 2 times, no retry left"),
        (1, 0, "Preempted once, no retry left"),
        (1, -1, "Preempted once, retries without bound"),
    ],
)
def test_what_is_left_of_the_retries(desk: Desk, count: int, retries: int, text: str) -> None:
    identifier = preempt_times(desk, count, retries)
    assert text in desk.visitor().text(f"/requests/{identifier}")
