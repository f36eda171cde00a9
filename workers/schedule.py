"""The schedule of beat: it is kept in memory, and holds back ticks that the workers do not take.

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
"""The number of waiting ticks from which beat sends no more: no worker takes them, and later they would only delay others."""

CLOCK_SKEW_S = 30
"""The least seconds until a tick expires, because the clock of a worker may be ahead of beat's by so much."""


def schedule(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the ticks of these settings."""
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
    """A scheduler that sends a tick when its time has come, unless many are waiting already."""

    def _when(self, entry: ScheduleEntry, next_time_to_run: Any, mktime: object = None) -> float:
        """Return the time of an entry that is due in so many seconds. The entries are ordered by it."""
        return time.monotonic() + (self.adjust(next_time_to_run) or 0)

    def is_due(self, entry: ScheduleEntry) -> tuple[bool, float]:
        """Return True and the seconds until the next time. An entry is only asked when its time in the order has come."""
        schedule: Any = entry.schedule
        return True, schedule.seconds

    def apply_entry(self, entry: ScheduleEntry, producer: Producer | None = None) -> None:
        """Send a tick, or leave it out with a line in the log."""
        try:
            if self._waiting() < MAX_WAITING_TICKS:
                self.apply_async(entry, producer=producer, advance=False)
            else:
                log.warning(
                    "tick %s is left out: %d ticks are waiting already; check that a worker runs", entry.name, MAX_WAITING_TICKS
                )
        except Exception as error:  # any error of a library: the next tick tries again
            log.warning("tick %s could not be sent: %s", entry.name, error)

    def _waiting(self) -> int:
        with self.app.connection_for_write() as connection:
            channel: Any = connection.channel()
            return int(channel.queue_declare(queue=self.app.conf.task_default_queue).message_count)
