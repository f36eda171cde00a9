"""The availability of the API: the time since which its processes answer. The record belongs to the service, not to a
workspace."""

from __future__ import annotations

from app.domain.clock import Clock, RedisClock
from app.store.connection import RedisClient
from app.store.keys import OWN
from app.store.scripts import Scripts


class AvailabilityStore:
    """The record of one Redis, written by every process of the API."""

    def __init__(self, client: RedisClient, clock: Clock | None = None) -> None:
        self._scripts = Scripts(client)
        self._clock = clock or RedisClock()

    def record(self, gap_s: int) -> None:
        """Record that a process answers now."""
        self._scripts.call("record_availability", OWN, now=self._clock.now_ms(), gap_s=gap_s)

    def read_since_ms(self, gap_s: int) -> int | None:
        """Return the time since which the API answers without an outage; now during one; None if it never answered."""
        reply = self._scripts.call("read_availability", OWN, now=self._clock.now_ms(), gap_s=gap_s)
        return int(reply.fields["since_ms"]) if reply.fields["since_ms"] else None
