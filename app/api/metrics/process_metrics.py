"""The metrics that the API processes count, and the whole page of metrics.

The counters of all processes are in the files of one directory (`PROMETHEUS_MULTIPROC_DIR`, set by the configuration of
gunicorn). The metrics in Redis are read at each scrape, so every process answers the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from app.api.metrics.ledger_metrics import collect_ledger_metrics
from app.api.metrics.metric_types import ProcessMetric
from app.api.metrics.multiprocess_dir import ENVIRONMENT_VARIABLE, read_lock
from app.api.metrics.registry import PROCESS_METRICS
from app.bootstrap import Services
from app.domain.tokens import Token


class ProcessMetrics:
    """The metrics that this process counts: those of the table whose class is ProcessMetric."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._collectors = {metric.name: _collector(metric, self.registry) for metric in PROCESS_METRICS}
        self._child = cache(self._find_child)

    def increment(self, metric: ProcessMetric, *label_values: str, by: float = 1) -> None:
        """Add to a counter or a gauge."""
        self._child(metric.name, *label_values).inc(by)

    def observe(self, metric: ProcessMetric, value: float, *label_values: str) -> None:
        """Add a value to a histogram."""
        self._child(metric.name, *label_values).observe(value)

    def time(self, metric: ProcessMetric, *label_values: str) -> AbstractContextManager[object]:
        """Observe the duration of the context in a histogram."""
        timer: AbstractContextManager[object] = self._child(metric.name, *label_values).time()
        return timer

    def _find_child(self, name: str, *label_values: str) -> Any:
        collector = self._collectors[name]
        return collector.labels(*label_values) if label_values else collector


def _collector(metric: ProcessMetric, registry: CollectorRegistry) -> Any:
    if metric.kind == "counter":
        return Counter(metric.full_name, metric.help, metric.labels, registry=registry)
    if metric.kind == "gauge":
        return Gauge(metric.full_name, metric.help, metric.labels, registry=registry, multiprocess_mode="livesum")
    return Histogram(metric.full_name, metric.help, metric.labels, buckets=metric.bounds, registry=registry)


class MultiprocessCollector(Collector):
    """The counters of all processes, read from their files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def collect(self) -> Iterable[Metric]:
        """Return the metrics. Empty files are skipped: a process is creating the file, or was killed meanwhile."""
        with read_lock(self._directory):
            files = [str(file) for file in self._directory.glob("*.db") if _size(file)]
            metrics: Iterable[Metric] = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]
        return metrics


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # of a process that has ended
        return 0


def metrics_text(process_metrics: ProcessMetrics, services: Services, workspaces: Sequence[str], token: Token) -> bytes:
    """Return the page of all metrics, of all processes."""
    registry = process_metrics.registry
    if ENVIRONMENT_VARIABLE in os.environ:
        registry = CollectorRegistry()
        registry.register(MultiprocessCollector(Path(os.environ[ENVIRONMENT_VARIABLE])))
    families = collect_ledger_metrics(services, workspaces, token)
    text = "".join(f"{line}\n" for family in families for line in family.lines())
    return bytes(generate_latest(registry)) + text.encode()
