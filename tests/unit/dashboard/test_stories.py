"""The story of a request on its page: the request that it left for, and the end of its work; and rough estimates."""

from __future__ import annotations

import pytest

from tests.unit.dashboard.page_client import Desk


@pytest.mark.parametrize(
    ("end", "text"),
    [
        ({"outcome": "failed", "exit_code": 3}, "failed, exit 3"),
        ({"outcome": "failed", "exit_code": -9}, "failed, SIGKILL"),
        ({"outcome": "failed", "exit_code": -60}, "failed, signal 60"),
        ({"outcome": "succeeded", "exit_code": 0}, "succeeded, exit 0"),
        ({"outcome": "succeeded"}, "succeeded"),
    ],
)
def test_the_end_of_the_work_is_told(desk: Desk, end: dict[str, object], text: str) -> None:
    desk.pool(gpu=1)
    desk.policy()
    allocation = desk.submit(gpu=1)
    desk.post(f"/requests/{allocation['id']}/release", {"fence": allocation["fence"], **end})
    page = desk.visitor().text(f"/requests/{allocation['id']}")
    assert f"released in gpus {text} " in page
    assert page.count(f"{text} ") == 2


def test_a_story_names_the_waiter_of_a_victim(desk: Desk) -> None:
    desk.pool(gpu=1)
    desk.policy()
    desk.policy("other")
    allocation = desk.submit(gpu=1)
    waits = desk.submit("other", gpu=1, preemption_class=8, labels={"user": "ana", "command": "<b>.py"})
    desk.preempt(waits["id"], allocation)
    assert "ana <b>.py" in desk.visitor().text(f"/requests/{allocation['id']}").split("Timeline")[1]


@pytest.mark.parametrize(("count", "text"), [(1, "from only 1 run time "), (4, "from only 4 run times "), (5, None)])
def test_an_estimate_from_few_run_times_says_so(desk: Desk, count: int, text: str | None) -> None:
    desk.pool(gpu=1)
    desk.policy()
    for _ in range(count):
        allocation = desk.submit(gpu=1)
        desk.clock.advance(100)
        desk.post(f"/requests/{allocation['id']}/release", {"fence": allocation["fence"]})
    desk.submit(gpu=1)
    waits = desk.submit(gpu=1)
    for path in ("/pools/gpus", f"/requests/{waits['id']}"):
        page = desk.visitor().text(path)
        assert text in page if text else "from only" not in page
