"""The schedule of beat: in memory, as it has nothing worth keeping, and with no more ticks than workers take.

Intervals are measured by the monotonic clock. By the wall clock, beat would send no tick for an hour after that clock was set
back by an hour.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from celery.beat import ScheduleEntry, Scheduler
from kombu import Producer

from app.settings import Settings

log = logging.getLogger(__name__)

MAX_WAITING_TICKS = 20
"""Ticks left waiting in the queue; while there are more, nobody works, and others would only be in the way later."""

CLOCK_SKEW_S = 30
"""A tick that came too late is dropped, by the worker's clock, which may be ahead of beat's by this much."""


def schedule(settings: Settings) -> dict[str, dict[str, Any]]:
    """The ticks these settings ask for."""
    return {
        "reconcile": _periodic(settings.reconcile_interval_s, "workers.tasks.reconcile"),
        "update_fair_shares": _periodic(settings.shares_interval_s, "workers.tasks.update_fair_shares"),
        "cleanup": _periodic(settings.cleanup_interval_s, "workers.tasks.cleanup"),
        "record_usage": _periodic(settings.history_interval_s, "workers.tasks.record_usage"),
        "audit": _periodic(settings.audit_interval_s, "workers.tasks.audit"),
    }


def _periodic(interval_s: float, task: str) -> dict[str, Any]:
    return {"task": task, "schedule": interval_s, "options": {"expires": max(interval_s, CLOCK_SKEW_S)}}


class BoundedScheduler(Scheduler):
    """Sends a tick when its time has come, unless many wait already."""

    def _when(self, entry: ScheduleEntry, next_time_to_run: Any, mktime: object = None) -> float:
        """Return when an entry runs that is due in so many seconds; the entries are ordered by it."""
        return time.monotonic() + (self.adjust(next_time_to_run) or 0)

    def is_due(self, entry: ScheduleEntry) -> tuple[bool, float]:
        """True, and the seconds until the next time: an entry is asked for when its time in the order has come."""
        schedule: Any = entry.schedule
        return True, schedule.seconds

    def apply_entry(self, entry: ScheduleEntry, producer: Producer | None = None) -> None:
        """Sends it, leaves it, or says why it could not."""
        try:
            if self._waiting() < MAX_WAITING_TICKS:
                self.apply_async(entry, producer=producer, advance=False)
            else:
                log.warning("tick %s is left out: %d wait already, so no worker takes them", entry.name, MAX_WAITING_TICKS)
        except Exception as error:  # of any library below; the next tick tries again
            log.warning("tick %s could not be sent: %s", entry.name, error)

    def _waiting(self) -> int:
        with self.app.connection_for_write() as connection:
            channel: Any = connection.channel()
            return int(channel.queue_declare(queue=self.app.conf.task_default_queue).message_count)
