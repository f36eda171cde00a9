"""Liveness, readiness and metrics, for the platform that runs the service."""

from __future__ import annotations

from flask import Response

from app.api.metrics.process_metrics import metrics_text
from app.api.routing import Call
from app.api.schemas.health import HealthResponse

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def get_liveness(call: Call) -> HealthResponse:
    """Check that this process answers."""
    return HealthResponse(status="ok")


def get_readiness(call: Call) -> HealthResponse:
    """Check that Redis answers, has the scripts and accepts a write."""
    call.services.requests.check_ready()
    return HealthResponse(status="ok")


def get_metrics(call: Call) -> Response:
    """Return the metrics of the workspaces that the token may use, in the text format of Prometheus."""
    workspaces = [name for name in call.services.workspaces.list_names() if call.token.can_access(name)]

    return Response(metrics_text(call.process_metrics, call.services, workspaces, call.token), content_type=METRICS_TYPE)
