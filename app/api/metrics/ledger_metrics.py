"""The metrics that are read from Redis: their rows, by the table of metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.api.metrics.metric_types import Buckets, Metric, PolicyMetric, PoolMetric, WorkspaceMetric
from app.api.metrics.registry import OUTBOX_METRICS, POLICY_METRICS, POOL_METRICS, REQUEST_METRICS, TASK_METRICS, TOKEN_METRICS
from app.api.metrics.text_format import MetricFamily, labels
from app.bootstrap import Services
from app.domain.amounts import Amounts
from app.domain.metrics import PoolMetrics, WorkspaceMetrics
from app.domain.tokens import Token


def collect_ledger_metrics(services: Services, workspaces: Sequence[str], token: Token) -> Iterator[MetricFamily]:
    """Yield the families of these workspaces, and of tokens whose workspaces this token may use, in table order."""
    pools = [(metric, _family(metric)) for metric in POOL_METRICS]
    policies = [(metric, _family(metric)) for metric in POLICY_METRICS]
    requests = [(metric, _family(metric)) for metric in REQUEST_METRICS]
    outboxes = [(metric, _family(metric)) for metric in OUTBOX_METRICS]
    tasks = [(metric, _family(metric)) for metric in TASK_METRICS]
    for workspace in workspaces:
        for pool in services.metrics.list_pool_metrics(workspace):
            _add_pool(pools, policies, workspace, pool)
        counters, outbox = services.metrics.get_workspace_metrics(workspace), services.tasks.get_outbox_status(workspace)
        _add_counters([*requests, *tasks], workspace, counters)
        for metric, family in outboxes:
            family.add(labels(workspace=workspace), metric.read(outbox))
    for families in (pools, policies, requests, outboxes, tasks):
        yield from (family for _, family in families)
    for token_metric in TOKEN_METRICS:
        family = _family(token_metric)
        for expiring, left_s in services.tokens.list_expiring():
            if all(map(token.can_access, expiring.workspaces)):
                family.add(labels(token=expiring.name), token_metric.read(expiring, left_s))
        yield family


def _family(metric: Metric) -> MetricFamily:
    return MetricFamily(metric.full_name, metric.kind, metric.help)


def _add_pool(
    pool_families: Sequence[tuple[PoolMetric, MetricFamily]],
    policy_families: Sequence[tuple[PolicyMetric, MetricFamily]],
    workspace: str,
    pool: PoolMetrics,
) -> None:
    pool_labels = labels(workspace=workspace, pool=pool.name)
    keys = [(key, labels(key=key)) for key in sorted(pool.keys)]
    for metric, family in pool_families:
        _add_value(family, pool_labels, metric.read(pool), keys)
    for policy in pool.policies:
        policy_labels = f"{pool_labels},{labels(component=policy.component)}"
        for policy_metric, family in policy_families:
            value = policy_metric.read(policy)
            if value is not None:
                _add_value(family, policy_labels, value, keys, only_named_keys=policy_metric.only_named_keys)


def _add_value(
    family: MetricFamily,
    row_labels: str,
    value: float | Amounts,
    keys: Sequence[tuple[str, str]],
    *,
    only_named_keys: bool = False,
) -> None:
    if isinstance(value, int | float):
        family.add(row_labels, value)
        return
    for key, key_label in keys:
        if key in value or not only_named_keys:
            family.add(f"{row_labels},{key_label}", value.get(key, 0))


def _add_counters(families: Sequence[tuple[WorkspaceMetric, MetricFamily]], workspace: str, counters: WorkspaceMetrics) -> None:
    for metric, family in families:
        for values, value in metric.read(counters):
            row_labels = labels(**dict(zip(metric.labels, (workspace, *values), strict=True)))
            if isinstance(value, Buckets):
                family.add_buckets(row_labels, metric.bounds, value.counts, value.total)
            else:
                family.add(row_labels, value)
