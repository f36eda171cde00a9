"""The Flask application, made of the table of routes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

from flask import Flask, Response
from werkzeug.exceptions import HTTPException

from app.api import openapi, swagger_ui
from app.api.access_log import AccessLog
from app.api.auth import Authenticator
from app.api.metrics.process_metrics import ProcessMetrics
from app.api.metrics.registry import HTTP_WAITING
from app.api.request_handler import RequestHandler
from app.api.routes import AT_ROOT, PREFIX, ROUTES
from app.api.routing import Route
from app.api.views import View, set_views
from app.bootstrap import Services
from app.service.pools_file_schema import pools_file_schema
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """The settings that concern HTTP alone."""

    token_required: bool = False
    max_body_bytes: int = 4 * 2**20
    access_log: AccessLog = field(default_factory=lambda: AccessLog.of(Settings()))


ErrorPage = Callable[[Exception], Response | None]
"""A function that returns a page about an error, or None to leave it to the API."""


@dataclass(frozen=True, slots=True)
class AppContext:
    """The services and metrics that an extension of the application shares with the routes."""

    services: Services
    authenticator: Authenticator
    process_metrics: ProcessMetrics
    error_pages: list[ErrorPage] = field(default_factory=list)
    """The answers of extensions to errors outside of their views; the first answer counts."""


Extension = Callable[[AppContext], Sequence[View]]
"""A function that returns the views of an extension, such as the dashboard."""


def create_app(
    services: Services,
    options: HttpOptions | None = None,
    process_metrics: ProcessMetrics | None = None,
    extensions: Sequence[Extension] = (),
) -> Flask:
    """Return an application that serves the routes and the extensions."""
    options = options or HttpOptions()
    app = Flask("poolkeeper", static_folder=None)
    authenticator = Authenticator(services.tokens, required=options.token_required)
    process_metrics = process_metrics or ProcessMetrics()
    services.long_polls.slots.on_change = lambda kind, change: process_metrics.increment(HTTP_WAITING, kind, by=change)
    request_handler = RequestHandler(services, authenticator, process_metrics, options.max_body_bytes, options.access_log)
    views = [_view(request_handler, route, "") for route in AT_ROOT]
    views += [_view(request_handler, route, PREFIX) for route in ROUTES]
    views.append(View("GET", f"{PREFIX}/openapi.json", "openapi", _openapi_response))
    views.append(View("GET", f"{PREFIX}/pools.schema.json", "pools schema", _pools_schema_response))
    views += swagger_ui.VIEWS
    context = AppContext(services, authenticator, process_metrics)
    for extend in extensions:
        views += extend(context)
    set_views(app, views)

    def refusal_response(error: Exception) -> Response:
        pages = (error_page(error) for error_page in context.error_pages)
        return next((page for page in pages if page is not None), None) or request_handler.refusal_response(error)

    app.before_request(request_handler.start_request)
    app.after_request(request_handler.finish_request)
    app.register_error_handler(HTTPException, refusal_response)
    app.register_error_handler(Exception, refusal_response)
    return app


def _openapi_response() -> Response:
    return Response(openapi.document_json(), mimetype="application/json")


@cache
def _pools_schema() -> str:
    return json.dumps(pools_file_schema())


def _pools_schema_response() -> Response:
    return Response(_pools_schema(), mimetype="application/schema+json")


def _view(request_handler: RequestHandler, route: Route, prefix: str) -> View:
    rule = prefix + re.sub(r"{(\w+)}", r"<\1>", route.path)
    return View(route.method, rule, route.name, request_handler.view(route))
