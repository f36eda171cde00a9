"""The table of all metrics: name, kind, labels, help text, and the source of the values.

The processes count their own metrics with `ProcessMetrics`. All other values are read from Redis at each scrape: the state of
pools, policies and task outboxes (`PoolMetric`, `PolicyMetric`, `OutboxMetric`), and the counters of the Lua scripts
(`WorkspaceMetric`). Exposition and reference page are made from this table.

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

HTTP_REQUESTS = ProcessMetric(
    "http_requests_total", "counter", ("method", "route", "status"), "HTTP requests that were answered."
)
HTTP_REQUEST_DURATION = ProcessMetric(
    "http_request_duration_seconds",
    "histogram",
    ("method", "route"),
    "Seconds that an HTTP request took, long polls and streams included.",
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
HTTP_WAITING = ProcessMetric(
    "http_waiting", "gauge", ("kind",), "Wait slots in use: long polls, event streams, dashboard pages, large bodies."
)
SCRIPT_DURATION = ProcessMetric(
    "script_duration_seconds",
    "histogram",
    ("script",),
    "Seconds that a Lua script called by the API took, with the round trip to Redis; those of workers do not count.",
    (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5),
)
GRANT_LATENCY = ProcessMetric(
    "grant_latency_seconds",
    "histogram",
    (),
    "Seconds from a valid submit to its grant, for requests that are granted at once.",
    (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5),
)

PROCESS_METRICS = (HTTP_REQUESTS, HTTP_REQUEST_DURATION, HTTP_WAITING, SCRIPT_DURATION, GRANT_LATENCY)

_WORKSPACE = ("workspace",)
_POOL = ("workspace", "pool")
_POOL_KEY = ("workspace", "pool", "key")
_POLICY = ("workspace", "pool", "component")
_POLICY_KEY = ("workspace", "pool", "component", "key")

POOL_METRICS = (
    PoolMetric("pool_capacity", "gauge", _POOL_KEY, "Units of a key in the pool.", read=lambda pool: pool.amounts["limit"]),
    PoolMetric(
        "pool_used", "gauge", _POOL_KEY, "Units of a key that allocations hold.", read=lambda pool: pool.amounts["used"]
    ),
    PoolMetric(
        "pool_reserved",
        "gauge",
        _POOL_KEY,
        "Units of a key that are reserved for groups and policies.",
        read=lambda pool: pool.amounts["children_reserved"],
    ),
    PoolMetric(
        "pool_borrowed",
        "gauge",
        _POOL_KEY,
        "Units of a key that policies use beyond their reserved shares.",
        read=lambda pool: pool.borrowed,
    ),
    PoolMetric(
        "pool_held",
        "gauge",
        _POOL_KEY,
        "Units of a key that are held free for a waiter.",
        read=lambda pool: pool.on_hold,
    ),
    PoolMetric(
        "pool_queue_length", "gauge", _POOL, "Requests in the queue of the pool.", read=lambda pool: pool.numbers["queued"]
    ),
    PoolMetric("pool_active", "gauge", _POOL, "Requests that hold units.", read=lambda pool: pool.numbers["active"]),
    PoolMetric(
        "pool_preempting",
        "gauge",
        _POOL,
        "Requests that hold units and are leaving.",
        read=lambda pool: pool.numbers["preempting"],
    ),
    PoolMetric(
        "pool_oldest_wait_seconds",
        "gauge",
        _POOL,
        "Age of the oldest queued request of the pool, in seconds; 0 if its queue is empty.",
        read=lambda pool: pool.oldest_wait_s,
    ),
)

POLICY_METRICS = (
    PolicyMetric(
        "policy_used", "gauge", _POLICY_KEY, "Units of a key that the policy uses.", read=lambda policy: policy.amounts["used"]
    ),
    PolicyMetric(
        "policy_reserved",
        "gauge",
        _POLICY_KEY,
        "Units of a key that are reserved for the policy.",
        read=lambda policy: policy.amounts["reserved"],
    ),
    PolicyMetric(
        "policy_limit",
        "gauge",
        _POLICY_KEY,
        "The most units of a key that the policy may use; no row without a limit of its own.",
        read=lambda policy: policy.amounts["limit"],
        only_named_keys=True,
    ),
    PolicyMetric(
        "policy_borrowed",
        "gauge",
        _POLICY_KEY,
        "Units of a key that the policy uses beyond its reserved share.",
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
        "Age of the oldest queued request of the policy, in seconds; 0 if none waits.",
        read=lambda policy: policy.oldest_wait_s,
    ),
    PolicyMetric(
        "policy_satisfaction",
        "gauge",
        _POLICY,
        "Fair share: the part of its fair share that the policy uses; no row if the fair share is 0.",
        read=lambda policy: policy.satisfaction,
    ),
    PolicyMetric(
        "policy_starving",
        "gauge",
        _POLICY,
        "Fair share: the starvation of the policy; 0 none, 1 starving, 2 aggressively starving.",
        read=lambda policy: policy.starving,
    ),
)

REQUEST_METRICS = (
    WorkspaceMetric(
        "workspace_requests",
        "gauge",
        ("workspace", "state"),
        "Requests in each state that has not ended: queued, allocated, preempting.",
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
        "Requests that entered a state, by the code of the reason. `queued` without a reason: submits; with one: preemptions.",
        read=metric_values.transitions,
    ),
    WorkspaceMetric(
        "wait_seconds",
        "histogram",
        _POOL,
        "Seconds from the entry into the queue, by a submit or a preemption, to the grant; 0 if granted at once.",
        WAIT_BOUNDS_S,
        read=metric_values.waits,
    ),
    WorkspaceMetric(
        "reconcile_seconds",
        "histogram",
        _WORKSPACE,
        "Seconds that a reconcile of the workspace took.",
        PASS_BOUNDS_S,
        read=metric_values.passes,
    ),
    WorkspaceMetric(
        "preemptions_total",
        "counter",
        ("workspace", "pool", "profile", "reason"),
        "Allocations that were preempted, by the code of the reason.",
        read=metric_values.counters("preemptions"),
    ),
    WorkspaceMetric(
        "preemption_checkpoint_duration_seconds",
        "histogram",
        _POOL,
        "Seconds from the directive to save the work to its completed checkpoint.",
        CHECKPOINT_BOUNDS_S,
        read=metric_values.checkpoints,
    ),
    WorkspaceMetric(
        "preemption_victim_requeue_total",
        "counter",
        _POOL,
        "Preempted requests that went back to the queue.",
        read=metric_values.counters("requeued"),
    ),
    WorkspaceMetric(
        "preemption_failed_checkpoint_total",
        "counter",
        _POOL,
        "Preempted requests whose work was not saved.",
        read=metric_values.counters("failed_checkpoints"),
    ),
)

OUTBOX_METRICS = (
    OutboxMetric(
        "tasks_delayed", "gauge", _WORKSPACE, "Delayed tasks, whose time has not come.", read=lambda outbox: outbox.delayed
    ),
    OutboxMetric(
        "outbox_waiting",
        "gauge",
        _WORKSPACE,
        "Tasks that have to be sent to their broker: granted tasks, and those that will never run.",
        read=lambda outbox: outbox.waiting,
    ),
    OutboxMetric(
        "outbox_oldest_seconds",
        "gauge",
        _WORKSPACE,
        "Seconds that the oldest granted task has waited to be sent to its broker.",
        read=metric_values.oldest_task_s,
    ),
    OutboxMetric(
        "tasks_unstarted", "gauge", _WORKSPACE, "Sent tasks that no worker has started.", read=lambda outbox: outbox.unstarted
    ),
)

TASK_METRICS = (
    WorkspaceMetric(
        "dispatches_total",
        "counter",
        _WORKSPACE,
        "Messages sent to the broker: tasks to run, and tasks that will never run.",
        read=metric_values.total("dispatched"),
    ),
    WorkspaceMetric(
        "redispatches_total",
        "counter",
        _WORKSPACE,
        "Tasks sent again under the same fence, as no worker had started them in time.",
        read=metric_values.total("redispatched"),
    ),
    WorkspaceMetric(
        "dispatch_failures_total",
        "counter",
        _WORKSPACE,
        "Attempts to send tasks that the broker did not accept.",
        read=metric_values.total("dispatch_failures"),
    ),
    WorkspaceMetric(
        "tasks_not_started_total",
        "counter",
        _WORKSPACE,
        "Tasks taken back, as no worker had started them after several attempts.",
        read=metric_values.total("not_started"),
    ),
    WorkspaceMetric(
        "tasks_redelivered_total",
        "counter",
        _WORKSPACE,
        "Tasks that went back to the queue, as their worker was lost.",
        read=metric_values.total("redelivered"),
    ),
)

TOKEN_METRICS = (
    TokenMetric(
        "token_expires_in_seconds",
        "gauge",
        ("token",),
        "Seconds until a token expires, for at most twenty tokens that expire within seven days.",
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
