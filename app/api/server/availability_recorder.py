"""A thread in each API process that records at intervals that the API is available."""

from __future__ import annotations

import logging
from threading import Event, Thread

from app.domain.errors import StoreUnavailable
from app.service.availability import RECORD_INTERVAL_S, Availability

log = logging.getLogger("poolkeeper.api")


class AvailabilityRecorder:
    """The thread: it records at once and then every `RECORD_INTERVAL_S`, from `start` to `stop`."""

    def __init__(self, availability: Availability, interval_s: float = RECORD_INTERVAL_S) -> None:
        self._availability, self._interval_s = availability, interval_s
        self._stop = Event()
        self._thread = Thread(target=self._run, name="poolkeeper-availability", daemon=True)

    def start(self) -> None:
        """Begin to record."""
        self._thread.start()

    def stop(self) -> None:
        """End the records."""
        self._stop.set()

    def _run(self) -> None:
        while True:
            try:
                self._availability.record()
            except StoreUnavailable:
                pass  # an outage; the requests that fail are logged
            except Exception:
                log.exception("the availability of the API could not be recorded")
            if self._stop.wait(self._interval_s):
                return
