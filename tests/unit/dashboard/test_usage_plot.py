"""The usage history on the page of a pool: a sentence, a table, and the points of a plot of steps."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from app.dashboard.usage_history import WINDOWS_H
from tests.unit.dashboard.page_client import Desk

MINUTE_S = 60


def plotted(desk: Desk, query: str = "") -> Any:
    """Return the data of the plot."""
    return json.loads(desk.visitor().get(f"/pools/gpus/history{query}").get_data())


def values(plot: Any) -> dict[str, list[int | None]]:
    """Return the values of each line."""
    return {item["name"]: item["values"] for item in plot["series"]}


def use_briefly(desk: Desk, units: int) -> None:
    """Allocate units and give them back at once."""
    item = desk.submit(gpu=units)
    desk.post(f"/requests/{item['id']}/release", {"fence": item["fence"]})


def sample(desk: Desk) -> int:
    """Write a sample, and return its time in seconds."""
    desk.services.usage_history.record("default")
    desk.services.dashboard_queries._history_cache._entries.clear()
    now_s = desk.clock.now_ms() // 1000
    desk.clock.advance(MINUTE_S)
    return now_s


@pytest.fixture
def pool(desk: Desk) -> Desk:
    """Create a pool of 8 GPUs with one policy."""
    desk.pool(gpu=8)
    desk.policy("team")
    return desk


def test_one_sample_is_a_step_of_a_minute_in_the_last_hour(pool: Desk) -> None:
    pool.submit(gpu=3)
    at_s = sample(pool)
    plot = plotted(pool)
    now_s = pool.clock.now_ms() // 1000
    assert (plot["since"], plot["until"]) == (now_s - 3600, now_s)
    assert plot["times"] == [at_s - MINUTE_S, at_s]
    assert values(plot) == {"pool": [3, 3], "orchestrator/team": [3, 3], "capacity": [8, 8]}


def test_a_peak_between_two_samples_is_in_the_plot_the_sentence_and_the_table(pool: Desk) -> None:
    pool.submit(gpu=1)
    sample(pool)
    use_briefly(pool, 6)
    sample(pool)
    assert values(plotted(pool))["pool"] == [1, 1, 7]
    page = pool.visitor().text("/pools/gpus")
    assert "all policies together 1.0 on average and 7 at most; team 1.0 on average and 7 at most" in page
    assert "1.0, at most 7" in page


def test_no_line_leads_over_a_time_without_samples(pool: Desk) -> None:
    pool.submit(gpu=2)
    times_s = [sample(pool) for _ in range(3)]
    pool.clock.advance(20 * MINUTE_S)
    times_s.append(sample(pool))
    plot = plotted(pool)
    first, _, before_gap, after_gap = times_s
    assert plot["times"] == [first - MINUTE_S, *times_s[:3], before_gap + 1, after_gap - MINUTE_S, after_gap]
    assert values(plot)["pool"] == [2, 2, 2, 2, None, 2, 2]


def test_the_hours_are_chosen_and_stay_with_the_key(pool: Desk) -> None:
    pool.patch("/pools/gpus", {"capacity": {"mcpu": 100}})
    use_briefly(pool, 5)
    old_s = sample(pool)
    pool.clock.advance(2 * 3600)
    recent_s = sample(pool)
    assert plotted(pool)["times"] == [recent_s - MINUTE_S, recent_s]
    assert old_s in plotted(pool, "?hours=6")["times"]
    assert "5 at most" in pool.visitor().text("/pools/gpus?hours=6")
    assert "5 at most" not in pool.visitor().text("/pools/gpus?hours=1")
    assert plotted(pool, "?hours=99")["since"] == plotted(pool, "?hours=1")["since"]
    page = pool.visitor().get("/pools/gpus?hours=6&key=mcpu").get_data(as_text=True)
    for hours in WINDOWS_H:
        assert f'href="/pools/gpus?key=mcpu&amp;hours={hours}#history-title"' in page
    assert re.findall(r'aria-current="true">([^<]+)<', page) == ["6 h", "mcpu"]
    assert 'href="/pools/gpus?key=gpu&amp;hours=6#history-title"' in page
    assert 'data-from="/pools/gpus/history?key=mcpu&amp;hours=6"' in page


def test_an_hour_without_samples_is_said_to_be_unknown(pool: Desk) -> None:
    sample(pool)
    pool.clock.advance(3 * 3600)
    assert "Of gpu, in the last 1 h: no data." in pool.visitor().text("/pools/gpus")
    assert plotted(pool)["times"] == []
