"""What Prometheus is told: requests, counted in the processes; pools and what happened in them, read from Redis when it asks.

Counters of several processes meet in files (`PROMETHEUS_MULTIPROC_DIR`, set by gunicorn's configuration). What is in Redis is
read at the moment of the scrape and kept nowhere, so it is the same whichever process answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from app.api.metrics.ledger_metrics import measured
from app.api.metrics.multiprocess_dir import read_lock
from app.bootstrap import Services

REQUEST_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SCRIPT_BOUNDS_S = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5)
GRANT_BOUNDS_S = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)


class ProcessMetrics:
    """What is counted as it happens."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._request_count = Counter(
            "poolkeeper_http_requests_total", "Requests answered.", ("method", "route", "status"), registry=self.registry
        )
        self._request_duration = Histogram(
            "poolkeeper_http_request_duration_seconds",
            "How long they took; long polls and streams included.",
            ("method", "route"),
            buckets=REQUEST_BOUNDS_S,
            registry=self.registry,
        )
        self._waiting_clients = Gauge(
            "poolkeeper_http_waiting",
            "Clients held by a long poll or an event stream.",
            ("kind",),
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self._script_duration = Histogram(
            "poolkeeper_script_duration_seconds",
            "How long scripts took that the API called, the way to Redis and back included.",
            ("script",),
            buckets=SCRIPT_BOUNDS_S,
            registry=self.registry,
        )
        self._grant_latency = Histogram(
            "poolkeeper_grant_latency_seconds",
            "How long it took to grant those that need not wait: from an ask that is understood to the answer of the ledger.",
            buckets=GRANT_BOUNDS_S,
            registry=self.registry,
        )
        self._script_histogram = cache(self._script_duration.labels)

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """One more was answered."""
        self._request_count.labels(method, route, str(status)).inc()
        self._request_duration.labels(method, route).observe(seconds)

    def count_waiting_client(self, kind: str, change: int) -> None:
        """One more, or one less, is being held."""
        self._waiting_clients.labels(kind).inc(change)

    def time_script(self, name: str) -> AbstractContextManager[object]:
        """A script is being called, for as long as the context."""
        return self._script_histogram(name).time()

    def observe_grant(self, seconds: float) -> None:
        """One more was granted at once."""
        self._grant_latency.observe(seconds)


class MultiprocessCollector(Collector):
    """What all processes counted, from the files where it meets."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """All of it; a file that a process is just making, or died making, has nothing in it yet."""
        with read_lock(self._folder):
            files = [str(file) for file in self._folder.glob("*.db") if _size(file)]
            metrics: Iterable[Metric] = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]
        return metrics


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # of a process that has ended
        return 0


def metrics_text(counted: ProcessMetrics, services: Services, workspaces: Sequence[str]) -> bytes:
    """The whole page, of all processes."""
    registry = counted.registry
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        registry.register(MultiprocessCollector(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])))
    read = "".join(f"{line}\n" for family in measured(services, workspaces) for line in family.lines())
    return bytes(generate_latest(registry)) + read.encode()
