"""The reference page of metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.api.metrics.metric_types import Metric
from app.api.metrics.registry import (
    OUTBOX_METRICS,
    POLICY_METRICS,
    POOL_METRICS,
    PROCESS_METRICS,
    REQUEST_METRICS,
    TASK_METRICS,
    TOKEN_METRICS,
)
from tests.support.reference_pages.markdown import code, codes, page, table

SECTIONS: tuple[tuple[str, Sequence[Metric]], ...] = (
    ("Pools", POOL_METRICS),
    ("Policies", POLICY_METRICS),
    ("Requests and limits", REQUEST_METRICS),
    ("Tasks", (*OUTBOX_METRICS, *TASK_METRICS)),
    ("API processes", PROCESS_METRICS),
    ("Tokens", TOKEN_METRICS),
)


def metrics_page() -> str:
    """Return the page: the metrics by subject."""
    histograms = [metric for _, metrics in SECTIONS for metric in metrics if metric.bounds]
    return page(
        "Metrics",
        "`GET /metrics` answers these metrics in the text format of Prometheus, for all workspaces that the token may use. "
        "[config/prometheus.yml](../../config/prometheus.yml) scrapes them; alerts and a dashboard are beside it.",
        "app/api/metrics/registry.py",
        "Every name begins with `poolkeeper_`. No label has the id of a request or a text that a user wrote.",
        *(f"## {title}\n\n{_table(metrics)}" for title, metrics in SECTIONS),
        "## Buckets",
        "Upper bounds of the buckets of each histogram, in seconds.",
        table(
            ["histogram", "bounds"],
            ([code(metric.name), ", ".join(f"{bound:g}" for bound in metric.bounds)] for metric in histograms),
        ),
    )


def _table(metrics: Iterable[Metric]) -> str:
    return table(
        ["metric", "type", "labels", "meaning"],
        ([code(metric.name), metric.kind, codes(metric.labels), metric.help] for metric in metrics),
    )
