"""Liveness, readiness and metrics: for the platform that runs the service."""

from __future__ import annotations

from flask import Response

from app.api.metrics.process_metrics import metrics_text
from app.api.routing import Call
from app.api.schemas.health import HealthResponse

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def get_liveness(call: Call) -> HealthResponse:
    """Whether this process answers at all."""
    return HealthResponse(status="ok")


def get_readiness(call: Call) -> HealthResponse:
    """Whether Redis answers, knows the scripts and takes a write."""
    call.services.requests.check_ready()
    return HealthResponse(status="ok")


def get_metrics(call: Call) -> Response:
    """What Prometheus asks for: of the workspaces that the token may use."""
    workspaces = [name for name in call.services.workspaces.list_names() if call.token.can_access(name)]

    return Response(metrics_text(call.process_metrics, call.services, workspaces, call.token), content_type=METRICS_TYPE)
