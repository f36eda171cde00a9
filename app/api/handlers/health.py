"""What runs the service asks of it: is it alive, can it serve, what does it count."""

from __future__ import annotations

from flask import Response

from app.api.metrics.process_metrics import page
from app.api.routing import Call
from app.api.schemas.requests import HealthAnswer

TEXT = "text/plain; version=0.0.4; charset=utf-8"


def alive(call: Call) -> HealthAnswer:
    """Whether this process answers at all."""
    return HealthAnswer(status="ok")


def ready(call: Call) -> HealthAnswer:
    """Whether Redis answers, knows the scripts and takes a write."""
    call.services.requests.ready()
    return HealthAnswer(status="ok")


def metrics(call: Call) -> Response:
    """What Prometheus asks for: of the workspaces that the token may use."""
    workspaces = [one for one in call.services.registry.all() if call.token.may_use(one)]
    return Response(page(call.counted, call.services, workspaces), content_type=TEXT)
