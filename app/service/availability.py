"""The availability of the API. While no process of the API answers, no client can poll. So queue TTLs are paused."""

from __future__ import annotations

from typing import Final

from app.store.availability import AvailabilityStore

RECORD_INTERVAL_S: Final = 5
"""Seconds between two records of one process of the API."""
GAP_S: Final = 15
"""Seconds without a record after which the API counts as not available."""


class Availability:
    """The record of the times at which the API was available. The processes of the API write it, and the cleanup reads it."""

    def __init__(self, store: AvailabilityStore) -> None:
        self._store = store

    def record(self) -> None:
        """Record that this process answers, and that its Redis takes a write."""
        self._store.record(GAP_S)

    def read_since_ms(self) -> int | None:
        """Return the end of the last outage; during an outage, the present time; None if there is no record at all."""
        return self._store.read_since_ms(GAP_S)
