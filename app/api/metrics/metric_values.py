"""The values of metrics that the ledger counts: labels and numbers from the counters of a workspace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from app.api.metrics.metric_types import Buckets
from app.domain.metrics import CHECKPOINT_BOUNDS_S, PASS_BOUNDS_S, WAIT_BOUNDS_S, WorkspaceMetrics
from app.domain.tasks import OutboxStatus
from app.domain.workspaces import LimitUse


def requests_by_state(workspace: WorkspaceMetrics) -> Iterator[tuple[tuple[str, ...], float]]:
    yield ("queued",), workspace.queued
    yield ("allocated",), workspace.live - workspace.leaving
    yield ("preempting",), workspace.leaving


def limit_use(workspace: WorkspaceMetrics) -> Iterator[tuple[tuple[str, ...], float]]:
    for name, use in workspace.limits.items():
        yield (name,), use.present


def limits(workspace: WorkspaceMetrics) -> Iterator[tuple[tuple[str, ...], float]]:
    for name, use in workspace.limits.items():
        if use.limit is not None:
            yield (name,), use.limit


def component_limit_use(workspace: WorkspaceMetrics) -> Iterator[tuple[tuple[str, ...], float]]:
    for component, name, use in _component_limits(workspace):
        yield (component, name), use.present


def component_limits(workspace: WorkspaceMetrics) -> Iterator[tuple[tuple[str, ...], float]]:
    for component, name, use in _component_limits(workspace):
        if use.limit is not None:
            yield (component, name), use.limit


def _component_limits(workspace: WorkspaceMetrics) -> Iterator[tuple[str, str, LimitUse]]:
    for component, uses in workspace.component_limits.items():
        yield from ((component, name, use) for name, use in uses.items() if use.limit is not None)


def transitions(workspace: WorkspaceMetrics) -> Iterator[tuple[tuple[str, ...], float]]:
    yield ("", "queued", ""), workspace.submitted
    for (pool,), buckets in waits(workspace):
        yield (pool, "allocated", ""), sum(buckets.counts)
    yield from workspace.counters("moves").items()


def waits(workspace: WorkspaceMetrics) -> Iterator[tuple[tuple[str, ...], Buckets]]:
    for pool in sorted({pool for pool, _ in workspace.counters("waits")}):
        counts = workspace.buckets(f"waits|{pool}", len(WAIT_BOUNDS_S) + 1)
        yield (pool,), Buckets(counts, workspace.counts.get(f"waits_ms|{pool}", 0) / 1000)


def passes(workspace: WorkspaceMetrics) -> Iterator[tuple[tuple[str, ...], Buckets]]:
    if "reconciles" in workspace.counts:
        counts = workspace.buckets("looks", len(PASS_BOUNDS_S))
        beyond = workspace.counts["reconciles"] - sum(counts)  # with passes from before the buckets were counted
        yield (), Buckets([*counts, beyond], workspace.counts.get("reconcile_ms", 0) / 1000)


def checkpoints(workspace: WorkspaceMetrics) -> Iterator[tuple[tuple[str, ...], Buckets]]:
    for (pool,), total_ms in workspace.counters("checkpoints_ms").items():
        cumulative = [workspace.counts.get(f"checkpoints|{pool}|{bound}", 0) for bound in (*CHECKPOINT_BOUNDS_S, "inf")]
        yield (pool,), Buckets([count - before for before, count in pairwise((0, *cumulative))], total_ms / 1000)


def counters(name: str) -> Callable[[WorkspaceMetrics], Iterable[tuple[tuple[str, ...], float]]]:
    """Return a reader of the counters `name|label|…` of the Lua scripts: a row for each that has been counted."""
    return lambda workspace: workspace.counters(name).items()


def total(name: str) -> Callable[[WorkspaceMetrics], Iterable[tuple[tuple[str, ...], float]]]:
    """Return a reader of the counter `name` of the Lua scripts: always a row."""
    return lambda workspace: [((), workspace.counts.get(name, 0))]


def oldest_task_s(outbox: OutboxStatus) -> float:
    return (0 if outbox.oldest_ms is None else max(0, outbox.now_ms - outbox.oldest_ms)) / 1000
