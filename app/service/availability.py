"""The availability of the API. While no process of it answers, no client can poll, so queue TTLs do not run."""

from __future__ import annotations

from typing import Final

from app.store.availability import AvailabilityStore

RECORD_INTERVAL_S: Final = 5
"""The interval at which a process of the API records that it answers."""
GAP_S: Final = 15
"""A longer time without a record is an outage."""


class Availability:
    """The record of the answers of the API. Its processes write it, and the cleanup reads it."""

    def __init__(self, store: AvailabilityStore) -> None:
        self._store = store

    def record(self) -> None:
        """Record that this process answers, and that its Redis takes a write."""
        self._store.record(GAP_S)

    def read_since_ms(self) -> int | None:
        """Return the time of the end of the last outage; now during an outage; None if no process ever recorded anything."""
        return self._store.read_since_ms(GAP_S)
