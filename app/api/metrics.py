"""What Prometheus is told: requests, counted in the processes, and pools, read from Redis when it asks.

Counters of several processes meet in files (`PROMETHEUS_MULTIPROC_DIR`, set by gunicorn's configuration). What is in Redis is
read at the moment of the scrape and kept nowhere, so it is the same whichever process answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from app.bootstrap import Services

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
AMOUNTS = ("capacity", "used", "borrowed", "held")


class Counted:
    """What is counted as it happens."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "poolkeeper_http_requests_total", "Requests answered.", ("method", "route", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "poolkeeper_http_request_duration_seconds",
            "How long they took; long polls and streams included.",
            ("method", "route"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._seated = Gauge(
            "poolkeeper_http_waiting",
            "Clients held by a long poll or an event stream.",
            ("kind",),
            registry=self.registry,
            multiprocess_mode="livesum",
        )

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """One more was answered."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def seated(self, kind: str, change: int) -> None:
        """One more, or one less, is being held."""
        self._seated.labels(kind).inc(change)


class Pools(Collector):
    """What the ledger says of the pools, now."""

    def __init__(self, services: Services, workspaces: Iterable[str]) -> None:
        self._services, self._workspaces = services, tuple(workspaces)

    def collect(self) -> Iterator[Metric]:
        """Every family with the rows of every pool."""
        words = ("workspace", "pool")
        amounts = {
            name: GaugeMetricFamily(f"poolkeeper_pool_{name}", f"Units of a key: {name}.", labels=(*words, "key"))
            for name in AMOUNTS
        }
        counts = {
            "queue_length": GaugeMetricFamily("poolkeeper_pool_queue_length", "Requests that wait.", labels=words),
            "active_count": GaugeMetricFamily("poolkeeper_pool_active", "Requests that hold units.", labels=words),
        }
        policies = {
            name: GaugeMetricFamily(
                f"poolkeeper_policy_{name}", f"Units of a key: {name}.", labels=(*words, "component", "key")
            )
            for name in ("used", "reserved", "limit", "borrowed")
        }
        waits = GaugeMetricFamily("poolkeeper_policy_queue_length", "Requests that wait.", labels=(*words, "component"))
        for workspace in self._workspaces:
            for pool in self._services.pools.those(workspace, self._services.pools.names(workspace)):
                where = (workspace, pool.name)
                _rows(amounts, pool, where, pool.capacity)
                for name, family in counts.items():
                    family.add_metric(where, getattr(pool, name))
                for policy in pool.policies.values():
                    _rows(policies, policy, (*where, policy.name), pool.capacity)
                    waits.add_metric((*where, policy.name), policy.queued)
        yield from (*amounts.values(), *counts.values(), *policies.values(), waits)


def _rows(families: dict[str, GaugeMetricFamily], of: Any, where: tuple[str, ...], keys: Iterable[str]) -> None:
    for name, family in families.items():
        amounts = getattr(of, name)
        for key in keys:
            if name != "limit" or key in amounts:
                family.add_metric((*where, key), amounts.get(key, 0))


def page(counted: Counted, services: Services, workspaces: Iterable[str]) -> bytes:
    """The whole page, of all processes."""
    registry = counted.registry
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    pools = CollectorRegistry()
    pools.register(Pools(services, workspaces))
    return bytes(generate_latest(registry) + generate_latest(pools))
