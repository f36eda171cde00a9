"""The table of all metrics: name, kind, labels, help text, and where the values come from.

Metrics of the processes are counted where something happens, with `ProcessMetrics`. All other values are read from Redis at
each scrape: the state of pools, policies and task outboxes (`PoolMetric`, `PolicyMetric`, `OutboxMetric`), and the counters
of the Lua scripts (`WorkspaceMetric`). Exposition and reference page are made from this table.

Label values are workspaces, pools, components with a policy, keys, states, profiles, codes of reasons, and names of scripts,
routes and at most twenty tokens. They are never requests, or texts of users. Counters of a pool are deleted with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise

from app.api.metrics.metric_types import (
    Buckets,
    Metric,
    OutboxMetric,
    PolicyMetric,
    PoolMetric,
    ProcessMetric,
    TokenMetric,
    WorkspaceMetric,
)
from app.domain.metrics import CHECKPOINT_BOUNDS_S, PASS_BOUNDS_S, WAIT_BOUNDS_S, WorkspaceMetrics
from app.domain.tasks import OutboxStatus


def _requests_by_state(workspace: WorkspaceMetrics) -> Iterator[tuple[tuple[str, ...], float]]:
    yield ("queued",), workspace.queued
    yield ("allocated",), workspace.live - workspace.leaving
    yield ("preempting",), workspace.leaving


def _limit_use(workspace: WorkspaceMetrics) -> Iterator[tuple[tuple[str, ...], float]]:
    for name, use in workspace.limits.items():
        yield (name,), use.present


def _limits(workspace: WorkspaceMetrics) -> Iterator[tuple[tuple[str, ...], float]]:
    for name, use in workspace.limits.items():
        if use.limit is not None:
            yield (name,), use.limit


def _transitions(workspace: WorkspaceMetrics) -> Iterator[tuple[tuple[str, ...], float]]:
    yield ("", "queued", ""), workspace.submitted
    for (pool,), waits in _waits(workspace):
        yield (pool, "allocated", ""), sum(waits.counts)
    yield from workspace.counters("moves").items()


def _waits(workspace: WorkspaceMetrics) -> Iterator[tuple[tuple[str, ...], Buckets]]:
    for pool in sorted({pool for pool, _ in workspace.counters("waits")}):
        counts = workspace.buckets(f"waits|{pool}", len(WAIT_BOUNDS_S) + 1)
        yield (pool,), Buckets(counts, workspace.counts.get(f"waits_ms|{pool}", 0) / 1000)


def _passes(workspace: WorkspaceMetrics) -> Iterator[tuple[tuple[str, ...], Buckets]]:
    if "reconciles" in workspace.counts:
        counts = workspace.buckets("looks", len(PASS_BOUNDS_S))
        beyond = workspace.counts["reconciles"] - sum(counts)  # with passes from before the buckets were counted
        yield (), Buckets([*counts, beyond], workspace.counts.get("reconcile_ms", 0) / 1000)


def _checkpoints(workspace: WorkspaceMetrics) -> Iterator[tuple[tuple[str, ...], Buckets]]:
    for (pool,), total_ms in workspace.counters("checkpoints_ms").items():
        cumulative = [workspace.counts.get(f"checkpoints|{pool}|{bound}", 0) for bound in (*CHECKPOINT_BOUNDS_S, "inf")]
        yield (pool,), Buckets([count - before for before, count in pairwise((0, *cumulative))], total_ms / 1000)


def _counters(name: str) -> Callable[[WorkspaceMetrics], Iterable[tuple[tuple[str, ...], float]]]:
    """Return a reader of the counters `name|label|…` of the Lua scripts: a row for each that has been counted."""
    return lambda workspace: workspace.counters(name).items()


def _total(name: str) -> Callable[[WorkspaceMetrics], Iterable[tuple[tuple[str, ...], float]]]:
    """Return a reader of the counter `name` of the Lua scripts: always a row."""
    return lambda workspace: [((), workspace.counts.get(name, 0))]


def _oldest_task_s(outbox: OutboxStatus) -> float:
    return (0 if outbox.oldest_ms is None else max(0, outbox.now_ms - outbox.oldest_ms)) / 1000


HTTP_REQUESTS = ProcessMetric("http_requests_total", "counter", ("method", "route", "status"), "Requests answered.")
HTTP_REQUEST_DURATION = ProcessMetric(
    "http_request_duration_seconds",
    "histogram",
    ("method", "route"),
    "How long they took; long polls and streams included.",
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
HTTP_WAITING = ProcessMetric(
    "http_waiting", "gauge", ("kind",), "Clients held by a long poll, an event stream or a page, and calls with a large body."
)
SCRIPT_DURATION = ProcessMetric(
    "script_duration_seconds",
    "histogram",
    ("script",),
    "How long scripts took that the API called, the way to Redis and back included.",
    (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5),
)
GRANT_LATENCY = ProcessMetric(
    "grant_latency_seconds",
    "histogram",
    (),
    "How long it took to grant those that need not wait: from an ask that is understood to the answer of the ledger.",
    (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5),
)

PROCESS_METRICS = (HTTP_REQUESTS, HTTP_REQUEST_DURATION, HTTP_WAITING, SCRIPT_DURATION, GRANT_LATENCY)

_WORKSPACE = ("workspace",)
_POOL = ("workspace", "pool")
_POOL_KEY = ("workspace", "pool", "key")
_POLICY = ("workspace", "pool", "component")
_POLICY_KEY = ("workspace", "pool", "component", "key")

POOL_METRICS = (
    PoolMetric("pool_capacity", "gauge", _POOL_KEY, "Units of a key there are.", read=lambda pool: pool.amounts["limit"]),
    PoolMetric("pool_used", "gauge", _POOL_KEY, "Units of a key that somebody holds.", read=lambda pool: pool.amounts["used"]),
    PoolMetric(
        "pool_reserved",
        "gauge",
        _POOL_KEY,
        "Units of a key that are promised to groups and policies.",
        read=lambda pool: pool.amounts["children_reserved"],
    ),
    PoolMetric(
        "pool_borrowed",
        "gauge",
        _POOL_KEY,
        "Units of a key that policies hold beyond what they have reserved.",
        read=lambda pool: pool.borrowed,
    ),
    PoolMetric(
        "pool_held",
        "gauge",
        _POOL_KEY,
        "Units of a key that are kept free for somebody who waits.",
        read=lambda pool: pool.on_hold,
    ),
    PoolMetric("pool_queue_length", "gauge", _POOL, "Requests that wait.", read=lambda pool: pool.numbers["queued"]),
    PoolMetric("pool_active", "gauge", _POOL, "Requests that hold units.", read=lambda pool: pool.numbers["active"]),
    PoolMetric(
        "pool_preempting",
        "gauge",
        _POOL,
        "Requests that hold units and have to leave.",
        read=lambda pool: pool.numbers["preempting"],
    ),
    PoolMetric(
        "pool_oldest_wait_seconds",
        "gauge",
        _POOL,
        "Since the submission of who was submitted first of those that wait; 0 if nobody waits.",
        read=lambda pool: pool.oldest_wait_s,
    ),
)

POLICY_METRICS = (
    PolicyMetric(
        "policy_used", "gauge", _POLICY_KEY, "Units of a key that the policy holds.", read=lambda policy: policy.amounts["used"]
    ),
    PolicyMetric(
        "policy_reserved",
        "gauge",
        _POLICY_KEY,
        "Units of a key that are promised to the policy.",
        read=lambda policy: policy.amounts["reserved"],
    ),
    PolicyMetric(
        "policy_limit",
        "gauge",
        _POLICY_KEY,
        "Units of a key the policy may hold at most, where it has a limit of its own.",
        read=lambda policy: policy.amounts["limit"],
        only_named_keys=True,
    ),
    PolicyMetric(
        "policy_borrowed",
        "gauge",
        _POLICY_KEY,
        "Units of a key that the policy holds beyond what it has reserved.",
        read=lambda policy: policy.borrowed,
    ),
    PolicyMetric(
        "policy_queue_length",
        "gauge",
        _POLICY,
        "Requests of the component that wait for the pool.",
        read=lambda policy: policy.numbers["queued"],
    ),
    PolicyMetric(
        "policy_oldest_wait_seconds",
        "gauge",
        _POLICY,
        "Since the submission of who was submitted first of those of them that wait; 0 if nobody waits.",
        read=lambda policy: policy.oldest_wait_s,
    ),
    PolicyMetric(
        "policy_satisfaction",
        "gauge",
        _POLICY,
        "Fair share: how much of what is due to the policy it has; no row where nothing is due.",
        read=lambda policy: policy.satisfaction,
    ),
    PolicyMetric(
        "policy_starving",
        "gauge",
        _POLICY,
        "Fair share: whether it has had too little for too long; 0 no, 1 yes, 2 aggressively.",
        read=lambda policy: policy.starving,
    ),
)

REQUEST_METRICS = (
    WorkspaceMetric(
        "workspace_requests",
        "gauge",
        ("workspace", "state"),
        "Requests that wait, hold units, and have to leave.",
        read=_requests_by_state,
    ),
    WorkspaceMetric(
        "workspace_limit_use",
        "gauge",
        ("workspace", "limit"),
        "How much there is of what a limit of the workspace counts.",
        read=_limit_use,
    ),
    WorkspaceMetric(
        "workspace_limit",
        "gauge",
        ("workspace", "limit"),
        "The limits of the workspace; no row where there is none.",
        read=_limits,
    ),
    WorkspaceMetric(
        "requests_total",
        "counter",
        ("workspace", "pool", "state", "reason"),
        "Requests that came into a state, by the reason's code.",
        read=_transitions,
    ),
    WorkspaceMetric(
        "wait_seconds",
        "histogram",
        _POOL,
        "How long those granted had waited, since they entered the queue.",
        WAIT_BOUNDS_S,
        read=_waits,
    ),
    WorkspaceMetric(
        "reconcile_seconds", "histogram", _WORKSPACE, "How long the passes that decide took.", PASS_BOUNDS_S, read=_passes
    ),
    WorkspaceMetric(
        "preemptions_total",
        "counter",
        ("workspace", "pool", "profile", "reason"),
        "Allocations that had to leave.",
        read=_counters("preemptions"),
    ),
    WorkspaceMetric(
        "preemption_checkpoint_duration_seconds",
        "histogram",
        _POOL,
        "How long it took to save the work, from the directive to the word that it is done.",
        CHECKPOINT_BOUNDS_S,
        read=_checkpoints,
    ),
    WorkspaceMetric(
        "preemption_victim_requeue_total",
        "counter",
        _POOL,
        "Preempted, and back in the queue.",
        read=_counters("requeued"),
    ),
    WorkspaceMetric(
        "preemption_failed_checkpoint_total",
        "counter",
        _POOL,
        "Preempted, and their work was not saved.",
        read=_counters("failed_checkpoints"),
    ),
)

OUTBOX_METRICS = (
    OutboxMetric("tasks_delayed", "gauge", _WORKSPACE, "Tasks that wait for their time.", read=lambda outbox: outbox.delayed),
    OutboxMetric(
        "outbox_waiting", "gauge", _WORKSPACE, "Tasks to be sent to their broker now.", read=lambda outbox: outbox.waiting
    ),
    OutboxMetric(
        "outbox_oldest_seconds",
        "gauge",
        _WORKSPACE,
        "How long the oldest of them has been waiting for that.",
        read=_oldest_task_s,
    ),
    OutboxMetric(
        "tasks_unstarted", "gauge", _WORKSPACE, "Tasks sent that no worker has begun.", read=lambda outbox: outbox.unstarted
    ),
)

TASK_METRICS = (
    WorkspaceMetric(
        "dispatches_total",
        "counter",
        _WORKSPACE,
        "Tasks sent to their broker, and word sent there of those that will never run.",
        read=_total("dispatched"),
    ),
    WorkspaceMetric(
        "redispatches_total",
        "counter",
        _WORKSPACE,
        "Tasks sent once more under the same fence, as no worker had begun them in time.",
        read=_total("redispatched"),
    ),
    WorkspaceMetric(
        "dispatch_failures_total",
        "counter",
        _WORKSPACE,
        "Times that a broker took nothing.",
        read=_total("dispatch_failures"),
    ),
    WorkspaceMetric(
        "tasks_not_started_total",
        "counter",
        _WORKSPACE,
        "Tasks taken back, as no worker had begun them after several times.",
        read=_total("not_started"),
    ),
    WorkspaceMetric(
        "tasks_redelivered_total",
        "counter",
        _WORKSPACE,
        "Tasks that entered the queue again, as their worker was lost.",
        read=_total("redelivered"),
    ),
)

TOKEN_METRICS = (
    TokenMetric(
        "token_expires_in_seconds",
        "gauge",
        ("token",),
        "Time until a token expires, of the tokens that do so within seven days; of twenty at most.",
        read=lambda token, left_s: left_s,
    ),
)

METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        *PROCESS_METRICS,
        *POOL_METRICS,
        *POLICY_METRICS,
        *REQUEST_METRICS,
        *OUTBOX_METRICS,
        *TASK_METRICS,
        *TOKEN_METRICS,
    )
}
"""All metrics by name, in the order of the exposition."""
