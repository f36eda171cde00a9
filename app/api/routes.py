"""The table: every route there is, and who may."""

from __future__ import annotations

from app.api.handlers import (
    declarations,
    dry_run,
    events,
    explain,
    health,
    policies,
    pool_shares,
    pools,
    requests,
    tasks,
    usage_history,
    workspaces,
)
from app.api.routing import STREAM, Route
from app.domain.tokens import Permission

READ, SUBMIT, ACT, DROP = Permission.READ, Permission.SUBMIT, Permission.ACT, Permission.DROP
ADJUST, SHAPE = Permission.ADJUST, Permission.SHAPE
KEY = ("Idempotency-Key",)

PREFIX = "/api/v1"

ROUTES: tuple[Route, ...] = (
    # pools
    Route("POST", "/pools", SHAPE, pools.create, (201,), (409, 422), KEY),
    Route("GET", "/pools", READ, pools.every),
    Route("GET", "/pools/{pool}", READ, pools.show),
    Route("PATCH", "/pools/{pool}", ADJUST, pools.change, (200,), (409, 422)),
    Route("DELETE", "/pools/{pool}", SHAPE, pools.delete, (204,), (409,)),
    Route("GET", "/pools/{pool}/requests", READ, pools.requests),
    Route("GET", "/pools/{pool}/shares", READ, pool_shares.of_pool),
    Route("GET", "/pools/{pool}/history", READ, usage_history.of_pool),
    # policies and groups
    Route("GET", "/pools/{pool}/policies", READ, policies.every),
    Route("PUT", "/pools/{pool}/policies/{component}", ADJUST, policies.put, (200, 201), (409, 422)),
    Route("GET", "/pools/{pool}/policies/{component}", READ, policies.show),
    Route("DELETE", "/pools/{pool}/policies/{component}", SHAPE, policies.delete, (204,), (409,)),
    Route("GET", "/pools/{pool}/groups", READ, policies.groups),
    Route("PUT", "/pools/{pool}/groups/{group}", SHAPE, policies.put_group, (200, 201), (409, 422)),
    Route("GET", "/pools/{pool}/groups/{group}", READ, policies.show_group),
    Route("DELETE", "/pools/{pool}/groups/{group}", SHAPE, policies.delete_group, (204,), (409,)),
    Route("GET", "/components/{component}/policies", READ, policies.of_component),
    # requests
    Route("POST", "/requests", SUBMIT, requests.submit, (201,), (409,), KEY),
    Route("POST", "/requests/batch", SUBMIT, requests.submit_batch, (201,), (), KEY),
    Route("GET", "/requests", READ, requests.every),
    Route("GET", "/requests/{request}", READ, requests.show),
    Route("DELETE", "/requests/{request}", DROP, requests.drop),
    Route("POST", "/requests/{request}/heartbeat", ACT, requests.heartbeat, (200,), (409,)),
    Route("POST", "/requests/{request}/release", ACT, requests.release, (200,), (409,)),
    Route("POST", "/requests/{request}/checkpoint", ACT, requests.checkpoint, (200,), (409,)),
    Route("POST", "/requests/{request}/cancel", ACT, requests.cancel, (200,), (409,)),
    Route("GET", "/requests/{request}/events", READ, requests.story),
    Route("GET", "/requests/{request}/explain", READ, explain.explain),
    Route("GET", "/requests/{request}/estimate", READ, explain.estimate),
    Route("POST", "/dry-run", READ, dry_run.try_out, (200,), (404, 409, 422)),
    # tasks
    Route("POST", "/tasks", SUBMIT, tasks.park, (201,), (409, 422), KEY),
    Route("GET", "/tasks/{task}", READ, tasks.show),
    Route("POST", "/tasks/{task}/cancel", ACT, tasks.cancel, (200,), (409,)),
    Route("POST", "/tasks/{task}/heard", ACT, tasks.heard, (204,), (409,)),
    Route("POST", "/requests/{request}/start", ACT, tasks.start, (200,), (409,)),
    # the workspace
    Route("GET", "/events", READ, events.every, headers=("Last-Event-ID",), produces=("application/json", STREAM)),
    Route("GET", "/workspace", READ, workspaces.show),
    Route("PATCH", "/workspace", SHAPE, workspaces.change),
    Route("GET", "/whoami", READ, workspaces.whoami),
    Route("GET", "/declaration", READ, declarations.export),
    Route("POST", "/declaration/plan", READ, declarations.plan, (200,), (409, 422)),
    Route("PUT", "/declaration", SHAPE, declarations.apply, (200,), (409, 422)),
)
"""Below the prefix."""

AT_ROOT: tuple[Route, ...] = (
    Route("GET", "/healthz", None, health.alive),
    Route("GET", "/readyz", None, health.ready),
    Route("GET", "/metrics", READ, health.metrics, in_workspace=False, produces=("text/plain",)),
)
"""At the root."""
