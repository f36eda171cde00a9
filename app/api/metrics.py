"""What Prometheus is told: requests, counted in the processes; pools and what was preempted, read from Redis when it asks.

Counters of several processes meet in files (`PROMETHEUS_MULTIPROC_DIR`, set by gunicorn's configuration). What is in Redis is
read at the moment of the scrape and kept nowhere, so it is the same whichever process answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from app.bootstrap import Services

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
AMOUNTS = ("capacity", "used", "borrowed", "held")
CHECKPOINT_BUCKETS = (1, 5, 15, 30, 60, 120, 300, 600, 1800)
"""Seconds: as the ledger counts them, each with all those before it."""


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


class Processes(Collector):
    """What all processes counted, from the files where it meets."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """All of it; a file that a process is just making, or died making, has nothing in it yet."""
        files = [str(file) for file in self._folder.glob("*.db") if _size(file)]
        metrics: Iterable[Metric] = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]
        return metrics


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # of a process that has ended
        return 0


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


class Preempted(Collector):
    """What the ledger has counted of preemptions and decisions since the workspace is."""

    def __init__(self, services: Services, workspaces: Iterable[str]) -> None:
        self._services, self._workspaces = services, tuple(workspaces)

    def collect(self) -> Iterator[Metric]:
        """Every family with the rows of every workspace."""
        where = ("workspace", "pool")
        stopped = CounterMetricFamily(
            "poolkeeper_preemptions", "Allocations that had to leave.", labels=(*where, "profile", "reason")
        )
        saving = HistogramMetricFamily(
            "poolkeeper_preemption_checkpoint_duration_seconds",
            "How long it took to save the work, from the directive to the word that it is done.",
            labels=where,
        )
        requeued = CounterMetricFamily(
            "poolkeeper_preemption_victim_requeue", "Preempted requests that went back to the queue.", labels=where
        )
        failed = CounterMetricFamily(
            "poolkeeper_preemption_failed_checkpoint", "Preempted requests that did not save their work.", labels=where
        )
        decided = SummaryMetricFamily(
            "poolkeeper_reconcile_seconds", "How long the passes that decide took.", labels=("workspace",)
        )
        for workspace in self._workspaces:
            counts = self._services.requests.counts(workspace)
            for of, count in _of("preemptions", counts):
                stopped.add_metric((workspace, *of), count)
            for family, field in ((requeued, "requeued"), (failed, "failed_checkpoints")):
                for of, count in _of(field, counts):
                    family.add_metric((workspace, *of), count)
            for of, total_ms in _of("checkpoints_ms", counts):
                saving.add_metric((workspace, *of), _buckets(of[0], counts), total_ms / 1000)
            if "reconciles" in counts:
                decided.add_metric((workspace,), counts["reconciles"], counts.get("reconcile_ms", 0) / 1000)
        yield from (stopped, saving, requeued, failed, decided)


class Sent(Collector):
    """How the tasks stand that wait to be sent to their brokers, and what became of those that were."""

    GAUGES: Mapping[str, str] = {
        "tasks_delayed": "Tasks that wait for their time.",
        "outbox_waiting": "Tasks to be sent to their broker now.",
        "outbox_oldest_seconds": "How long the oldest of them has been waiting for that.",
        "tasks_unstarted": "Tasks sent that no worker has begun.",
    }
    COUNTERS: Mapping[str, tuple[str, str]] = {
        "dispatches": ("dispatched", "Tasks sent to their broker, and word sent there of those that will never run."),
        "redispatches": ("redispatched", "Tasks sent once more under the same fence, as no worker had begun them in time."),
        "dispatch_failures": ("dispatch_failures", "Times that a broker took nothing."),
        "tasks_not_started": ("not_started", "Tasks taken back, as no worker had begun them after several times."),
        "tasks_redelivered": ("redelivered", "Tasks that entered the queue again, as their worker was lost."),
    }
    """Name: what the ledger counts it as, and what it is."""

    def __init__(self, services: Services, workspaces: Iterable[str]) -> None:
        self._services, self._workspaces = services, tuple(workspaces)

    def collect(self) -> Iterator[Metric]:
        """Every family with the row of every workspace."""
        where = ("workspace",)
        gauges = {name: GaugeMetricFamily(f"poolkeeper_{name}", says, labels=where) for name, says in self.GAUGES.items()}
        counters = {
            name: CounterMetricFamily(f"poolkeeper_{name}", says, labels=where) for name, (_, says) in self.COUNTERS.items()
        }
        for workspace in self._workspaces:
            counts, outbox = self._services.requests.counts(workspace), self._services.tasks.outbox(workspace)
            for name, (counted, _) in self.COUNTERS.items():
                counters[name].add_metric((workspace,), counts.get(counted, 0))
            waited_ms = 0 if outbox.oldest_ms is None else max(0, outbox.now_ms - outbox.oldest_ms)
            values = (outbox.delayed, outbox.waiting, waited_ms / 1000, outbox.unstarted)
            for name, value in zip(self.GAUGES, values, strict=True):
                gauges[name].add_metric((workspace,), value)
        yield from (*gauges.values(), *counters.values())


def _of(field: str, counts: Mapping[str, int]) -> Iterator[tuple[tuple[str, ...], int]]:
    """What was counted under a name, by what follows it."""
    for name in sorted(counts):
        first, *of = name.split("|")
        if first == field and of:
            yield tuple(of), counts[name]


def _buckets(pool: str, counts: Mapping[str, int]) -> list[tuple[str, float]]:
    bounds = {str(bound): f"{bound}.0" for bound in CHECKPOINT_BUCKETS} | {"inf": "+Inf"}
    return [(shown, counts.get(f"checkpoints|{pool}|{bound}", 0)) for bound, shown in bounds.items()]


def _rows(families: dict[str, GaugeMetricFamily], of: Any, where: tuple[str, ...], keys: Iterable[str]) -> None:
    for name, family in families.items():
        amounts = getattr(of, name)
        for key in keys:
            if name != "limit" or key in amounts:
                family.add_metric((*where, key), amounts.get(key, 0))


def page(counted: Counted, services: Services, workspaces: Sequence[str]) -> bytes:
    """The whole page, of all processes."""
    registry = counted.registry
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        registry.register(Processes(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])))
    pools = CollectorRegistry()
    pools.register(Pools(services, workspaces))
    pools.register(Preempted(services, workspaces))
    pools.register(Sent(services, workspaces))
    return bytes(generate_latest(registry) + generate_latest(pools))
