"""Beat while the wall clock is set: it ticks by the intervals of the settings, whatever the time of day is."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from celery import Celery
from celery.beat import ScheduleEntry
from kombu import Producer

from workers.schedule import BoundedScheduler


class Clocks:
    """The clock of the machine and the monotonic one, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, app: Celery) -> None:
        self.monotonic_s, self.wall_time = 1000.0, datetime(2026, 1, 1, 12).astimezone()
        monkeypatch.setattr(time, "monotonic", lambda: self.monotonic_s)
        monkeypatch.setattr(app, "now", lambda: self.wall_time)

    def advance(self, seconds: float) -> None:
        """Let time pass, on both clocks."""
        self.monotonic_s += seconds
        self.wall_time += timedelta(seconds=seconds)


class RecordingScheduler(BoundedScheduler):
    """Records the ticks instead of sending them."""

    producer: Any = None
    max_interval = 5

    def __init__(self, **options: Any) -> None:
        self.sent: list[str] = []
        super().__init__(**options)

    def apply_entry(self, entry: ScheduleEntry, producer: Producer | None = None) -> None:
        self.sent.append(str(entry.name))

    def pass_time(self, clocks: Clocks, seconds: int) -> list[str]:
        """Return the ticks of so many seconds, in order."""
        self.sent = []
        for _ in range(10 * seconds):
            while self.tick() == 0:
                pass
            clocks.advance(0.1)
        return sorted(self.sent)


@pytest.mark.parametrize("step_h", [-1, 1])
def test_the_intervals_stay_when_the_clock_is_set(step_h: int, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Celery("test", set_as_current=False)
    app.conf.result_expires = None
    clocks = Clocks(monkeypatch, app)
    intervals = {"often": 1.0, "rarely": 4.0}
    schedule = {name: {"task": name, "schedule": interval_s} for name, interval_s in intervals.items()}
    app.conf.beat_schedule = schedule
    scheduler = RecordingScheduler(app=app)
    before = scheduler.pass_time(clocks, 8)
    assert (before.count("often"), before.count("rarely")) in {(7, 1), (8, 2)}
    clocks.wall_time += timedelta(hours=step_h)
    after = scheduler.pass_time(clocks, 8)
    assert (after.count("often"), after.count("rarely")) == (8, 2)
