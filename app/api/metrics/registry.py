"""The table of all metrics: name, kind, labels, help text, and where the values come from.

Metrics of the processes are counted where something happens, with `ProcessMetrics`. All other values are read from Redis at
each scrape: the state of pools, policies and task outboxes (`PoolMetric`, `PolicyMetric`, `OutboxMetric`), and the counters
of the Lua scripts (`WorkspaceMetric`). Exposition and reference page are made from this table.

Label values are workspaces, pools, components with a policy, keys, states, profiles, codes of reasons, and names of scripts,
routes and at most twenty tokens. They are never requests, or texts of users. Counters of a pool are deleted with it.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.api.metrics import metric_values
from app.api.metrics.metric_types import (
    Metric,
    OutboxMetric,
    PolicyMetric,
    PoolMetric,
    ProcessMetric,
    TokenMetric,
    WorkspaceMetric,
)
from app.domain.metrics import CHECKPOINT_BOUNDS_S, PASS_BOUNDS_S, WAIT_BOUNDS_S

HTTP_REQUESTS = ProcessMetric("http_requests_total", "counter", ("method", "route", "status"), "Requests answered.")
HTTP_REQUEST_DURATION = ProcessMetric(
    "http_request_duration_seconds",
    "histogram",
    ("method", "route"),
    "How long they took; long polls and streams included.",
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
HTTP_WAITING = ProcessMetric(
    "http_waiting", "gauge", ("kind",), "Wait slots in use: long polls, event streams, dashboard pages, large bodies."
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
        read=metric_values.requests_by_state,
    ),
    WorkspaceMetric(
        "workspace_limit_use",
        "gauge",
        ("workspace", "limit"),
        "The use of a limit of the workspace: the present number that the limit is compared with.",
        read=metric_values.limit_use,
    ),
    WorkspaceMetric(
        "workspace_limit",
        "gauge",
        ("workspace", "limit"),
        "The limit of the workspace; no row if there is no limit.",
        read=metric_values.limits,
    ),
    WorkspaceMetric(
        "component_limit_use",
        "gauge",
        ("workspace", "component", "limit"),
        "The use of a limit of a component; a row only for components with limits of their own, at most 1,000.",
        read=metric_values.component_limit_use,
    ),
    WorkspaceMetric(
        "component_limit",
        "gauge",
        ("workspace", "component", "limit"),
        "The limit of a component; a row only for components with limits of their own.",
        read=metric_values.component_limits,
    ),
    WorkspaceMetric(
        "requests_total",
        "counter",
        ("workspace", "pool", "state", "reason"),
        "Requests that came into a state, by the reason's code.",
        read=metric_values.transitions,
    ),
    WorkspaceMetric(
        "wait_seconds",
        "histogram",
        _POOL,
        "How long those granted had waited, since they entered the queue.",
        WAIT_BOUNDS_S,
        read=metric_values.waits,
    ),
    WorkspaceMetric(
        "reconcile_seconds",
        "histogram",
        _WORKSPACE,
        "How long the passes that decide took.",
        PASS_BOUNDS_S,
        read=metric_values.passes,
    ),
    WorkspaceMetric(
        "preemptions_total",
        "counter",
        ("workspace", "pool", "profile", "reason"),
        "Allocations that had to leave.",
        read=metric_values.counters("preemptions"),
    ),
    WorkspaceMetric(
        "preemption_checkpoint_duration_seconds",
        "histogram",
        _POOL,
        "How long it took to save the work, from the directive to the word that it is done.",
        CHECKPOINT_BOUNDS_S,
        read=metric_values.checkpoints,
    ),
    WorkspaceMetric(
        "preemption_victim_requeue_total",
        "counter",
        _POOL,
        "Preempted, and back in the queue.",
        read=metric_values.counters("requeued"),
    ),
    WorkspaceMetric(
        "preemption_failed_checkpoint_total",
        "counter",
        _POOL,
        "Preempted, and their work was not saved.",
        read=metric_values.counters("failed_checkpoints"),
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
        read=metric_values.oldest_task_s,
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
        read=metric_values.total("dispatched"),
    ),
    WorkspaceMetric(
        "redispatches_total",
        "counter",
        _WORKSPACE,
        "Tasks sent once more under the same fence, as no worker had begun them in time.",
        read=metric_values.total("redispatched"),
    ),
    WorkspaceMetric(
        "dispatch_failures_total",
        "counter",
        _WORKSPACE,
        "Times that a broker took nothing.",
        read=metric_values.total("dispatch_failures"),
    ),
    WorkspaceMetric(
        "tasks_not_started_total",
        "counter",
        _WORKSPACE,
        "Tasks taken back, as no worker had begun them after several times.",
        read=metric_values.total("not_started"),
    ),
    WorkspaceMetric(
        "tasks_redelivered_total",
        "counter",
        _WORKSPACE,
        "Tasks that entered the queue again, as their worker was lost.",
        read=metric_values.total("redelivered"),
    ),
)

TOKEN_METRICS = (
    TokenMetric(
        "token_expires_in_seconds",
        "gauge",
        ("token",),
        "Time until a token expires. At most twenty tokens, of those that expire within seven days.",
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
