"""The Flask application, made of the table of routes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flask import Flask, Response
from werkzeug.exceptions import HTTPException

from app.api import openapi, swagger_ui
from app.api.auth import Access
from app.api.metrics.process_metrics import Counted
from app.api.request_handler import Dispatch
from app.api.routes import AT_ROOT, PREFIX, ROUTES
from app.api.routing import Route
from app.bootstrap import Services


@dataclass(frozen=True, slots=True)
class Choices:
    """What of the settings is HTTP's own."""

    token_required: bool = False
    max_body_bytes: int = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Ground:
    """What whoever serves something beside the routes builds on: the same services, the same door, the same counters."""

    app: Flask
    services: Services
    access: Access
    counted: Counted


Beside = Callable[[Ground], None]
"""Adds to the application what is served beside the routes."""


def create(
    services: Services,
    choices: Choices | None = None,
    counted: Counted | None = None,
    beside: Sequence[Beside] = (),
) -> Flask:
    """An application that serves these services, and what is beside the routes."""
    choices = choices or Choices()
    app = Flask("poolkeeper", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = choices.max_body_bytes + 1  # one more than is taken, so that too much is seen
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.url_map.strict_slashes = True
    app.url_map.merge_slashes = False  # a path is what it says, or 404: no redirects
    access = Access(services.tokens, required=choices.token_required)
    counted = counted or Counted()
    services.waiting.house.tell = counted.seated
    dispatch = Dispatch(services, access, counted)
    for route in AT_ROOT:
        _add(app, dispatch, route, "")
    for route in ROUTES:
        _add(app, dispatch, route, PREFIX)
    document = openapi.written()
    app.add_url_rule(f"{PREFIX}/openapi.json", "openapi", lambda: Response(document, mimetype="application/json"))
    swagger_ui.add(app)
    for add in beside:
        add(Ground(app, services, access, counted))
    app.before_request(dispatch.begin)
    app.after_request(dispatch.end)
    app.register_error_handler(HTTPException, dispatch.refuse)
    app.register_error_handler(Exception, dispatch.refuse)
    return app


def _add(app: Flask, dispatch: Dispatch, route: Route, prefix: str) -> None:
    rule = prefix + re.sub(r"{(\w+)}", r"<\1>", route.path)
    app.add_url_rule(rule, route.name, dispatch.view(route), methods=[route.method])
