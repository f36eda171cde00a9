"""The table of all routes, with the permission that each needs."""

from __future__ import annotations

from app.api.body_limits import LARGE_BODY, POOL_BODY, TASK_BODY
from app.api.handlers import (
    declarations,
    dry_run,
    events,
    explain,
    groups,
    health,
    policies,
    pool_shares,
    pools,
    requests,
    tasks,
    usage_history,
    workspaces,
)
from app.api.routing import EVENT_STREAM, Route
from app.domain.tokens import Permission

READ, SUBMIT, ACT, DROP = Permission.READ, Permission.SUBMIT, Permission.ACT, Permission.DROP
ADJUST, SHAPE = Permission.ADJUST, Permission.SHAPE
KEY = ("Idempotency-Key",)

PREFIX = "/api/v1"

ROUTES: tuple[Route, ...] = (
    # pools
    Route("POST", "/pools", SHAPE, pools.create_pool, (201,), (409, 422), KEY, body_limit=POOL_BODY),
    Route("GET", "/pools", READ, pools.list_pools),
    Route("GET", "/pools/{pool}", READ, pools.get_pool),
    Route("PATCH", "/pools/{pool}", ADJUST, pools.update_pool, (200,), (409, 422)),
    Route("DELETE", "/pools/{pool}", SHAPE, pools.delete_pool, (204,), (409,)),
    Route("GET", "/pools/{pool}/requests", READ, pools.list_pool_requests),
    Route("GET", "/pools/{pool}/shares", READ, pool_shares.get_pool_shares),
    Route("GET", "/pools/{pool}/history", READ, usage_history.get_usage_history),
    # policies and groups
    Route("GET", "/pools/{pool}/policies", READ, policies.list_policies),
    Route("PUT", "/pools/{pool}/policies/{component}", ADJUST, policies.put_policy, (200, 201), (409, 422)),
    Route("GET", "/pools/{pool}/policies/{component}", READ, policies.get_policy),
    Route("DELETE", "/pools/{pool}/policies/{component}", SHAPE, policies.delete_policy, (204,), (409,)),
    Route("GET", "/pools/{pool}/groups", READ, groups.list_groups),
    Route("PUT", "/pools/{pool}/groups/{group}", SHAPE, groups.put_group, (200, 201), (409, 422)),
    Route("GET", "/pools/{pool}/groups/{group}", READ, groups.get_group),
    Route("DELETE", "/pools/{pool}/groups/{group}", SHAPE, groups.delete_group, (204,), (409,)),
    Route("GET", "/components/{component}/policies", READ, policies.list_component_policies, refuses_absent=False),
    # requests
    Route("POST", "/requests", SUBMIT, requests.submit_request, (201,), (409,), KEY),
    Route("POST", "/requests/batch", SUBMIT, requests.submit_batch, (201,), (), KEY, body_limit=LARGE_BODY),
    Route("GET", "/requests", READ, requests.list_requests),
    Route("GET", "/requests/{request}", READ, requests.get_request, on_throttled=requests.record_throttled_poll),
    Route("DELETE", "/requests/{request}", DROP, requests.drop_request),
    Route("POST", "/requests/{request}/heartbeat", ACT, requests.send_heartbeat, (200,), (409,)),
    Route("POST", "/requests/{request}/release", ACT, requests.release_request, (200,), (409,)),
    Route("POST", "/requests/{request}/checkpoint", ACT, requests.report_checkpoint, (200,), (409,)),
    Route("POST", "/requests/{request}/cancel", ACT, requests.cancel_request, (200,), (409,)),
    Route("GET", "/requests/{request}/events", READ, requests.list_request_events),
    Route("GET", "/requests/{request}/explain", READ, explain.explain_request),
    Route("GET", "/requests/{request}/estimate", READ, explain.get_estimate),
    Route("POST", "/dry-run", READ, dry_run.dry_run, (200,), (404, 409, 422), body_limit=LARGE_BODY),
    # tasks
    Route("POST", "/tasks", SUBMIT, tasks.park_task, (201,), (409, 422), KEY, body_limit=TASK_BODY),
    Route("GET", "/tasks/{task}", READ, tasks.get_task),
    Route("POST", "/tasks/{task}/cancel", ACT, tasks.cancel_task, (200,), (409,)),
    Route("POST", "/tasks/{task}/heard", ACT, tasks.acknowledge_task_end, (204,), (409,)),
    Route("POST", "/requests/{request}/start", ACT, requests.start_request, (200,), (409,)),
    # the workspace
    Route(
        "GET",
        "/events",
        READ,
        events.list_events,
        request_headers=("Last-Event-ID",),
        media_types=("application/json", EVENT_STREAM),
    ),
    Route("GET", "/workspace", READ, workspaces.get_workspace),
    Route("PATCH", "/workspace", SHAPE, workspaces.update_workspace),
    Route("GET", "/whoami", READ, workspaces.whoami),
    Route("GET", "/declaration", READ, declarations.export_declaration),
    Route("POST", "/declaration/plan", READ, declarations.plan_declaration, (200,), (422,), body_limit=LARGE_BODY),
    Route("PUT", "/declaration", SHAPE, declarations.apply_declaration, (200,), (409, 422), body_limit=LARGE_BODY),
)
"""The routes below the prefix."""

AT_ROOT: tuple[Route, ...] = (
    Route("GET", "/healthz", None, health.get_liveness, uses_redis=False),
    Route("GET", "/readyz", None, health.get_readiness),
    Route("GET", "/metrics", READ, health.get_metrics, has_workspace=False, media_types=("text/plain",)),
)
"""The routes at the root."""
