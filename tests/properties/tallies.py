"""The counters of the metrics compared with the events: each grant by its wait, each other transition by state and reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from app.domain.metrics import WAIT_BOUNDS_S
from tests.properties.snapshot import Snapshot


class Tally:
    """Counts events as they come."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self._queued_ms: dict[str, int] = {}

    def note(self, event: dict[str, str]) -> None:
        """Count one event."""
        if event["from"] == event["to"]:
            return
        if event["to"] == "queued":
            self._queued_ms[event["request"]] = int(event["at"])
        if event["event"] == "allocated":
            waited_ms = int(event["at"]) - self._queued_ms[event["request"]]
            number = 1 + sum(waited_ms > bound * 1000 for bound in WAIT_BOUNDS_S)
            self.counts[f"waits|{event['pool']}|{number}"] += 1
            self.counts[f"waits_ms|{event['pool']}"] += waited_ms
        elif event["from"] and event["to"] != "allocated":
            self.counts[f"moves|{event['pool']}|{event['to']}|{event['reason']}"] += 1

    def faults(self, snapshot: Snapshot, pools: Collection[str]) -> Iterator[str]:
        """Yield the differences; a deleted pool is no longer counted."""
        for name in [name for name in self.counts if name.split("|")[1] not in ("", *pools)]:
            del self.counts[name]
        counted = {name: int(count) for name, count in snapshot.get("counters").items() if name.startswith(("waits", "moves"))}
        if counted != +self.counts:
            yield f"counted {counted}, should be {+self.counts}"
