"""The way of an HTTP request to its handler and back: authentication, arguments, response, metrics and access log."""

from __future__ import annotations

import logging
import random
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import quote

from flask import Request, Response, g, request
from pydantic import BaseModel, ValidationError
from werkzeug.datastructures import Headers, MultiDict

from app.api import errors
from app.api.access_log import AccessLog
from app.api.auth import Authenticator
from app.api.body_limits import BodyLimit
from app.api.metrics.process_metrics import ProcessMetrics
from app.api.metrics.registry import HTTP_REQUEST_DURATION, HTTP_REQUESTS
from app.api.request_body import large_body_turn, may_be_large, parse_body, read_body
from app.api.routing import EVENT_STREAM, Call, Route, path_pattern
from app.api.server import io_deadlines
from app.bootstrap import Services
from app.domain.errors import StoreUnavailable
from app.domain.field_types import StrictModel
from app.domain.names import PATTERN_TEXTS
from app.domain.tokens import ANONYMOUS, Permission, Token

log = logging.getLogger("poolkeeper.api")

RESPONSE_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""The headers of JSON responses: a client must not store them, nor guess their type."""
REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class Endpoint(Protocol):
    """A route or a page, as metrics and log see it: its name and its permission."""

    @property
    def path(self) -> str: ...
    @property
    def permission(self) -> Permission | None: ...


class RequestHandler:
    """The server of all routes."""

    def __init__(
        self,
        services: Services,
        authenticator: Authenticator,
        process_metrics: ProcessMetrics,
        max_body_bytes: int,
        access_log: AccessLog,
    ) -> None:
        self._services, self._authenticator, self._process_metrics = services, authenticator, process_metrics
        self._max_body_bytes, self._access_log = max_body_bytes, access_log

    def view(self, route: Route) -> Callable[..., Response]:
        """Return the function that Flask calls for a route."""

        def serve(**path: str) -> Response:
            http_request = _flask_request()
            g.route = route
            if sock := http_request.environ.get("gunicorn.socket"):
                io_deadlines.finish(sock.fileno())  # the head of the request has been read
            return self._serve(route, http_request, path)

        return serve

    def _serve(self, route: Route, http_request: Request, path: Mapping[str, str]) -> Response:
        call = self._call(route, http_request, path)
        arguments = self._arguments(route, http_request, path)
        if route.body_model is None:
            return self._response(route, call, route.handler(call, **arguments))
        limit = route.body_limit.within(self._max_body_bytes)
        if not may_be_large(http_request, limit):
            arguments["body"] = _body(route, http_request, read_body(http_request, limit), limit)
            return self._response(route, call, route.handler(call, **arguments))
        with self._services.long_polls.slots.required_slot("body", call.token.share_holder):
            data = read_body(http_request, limit)
            with large_body_turn():
                arguments["body"] = _body(route, http_request, data, limit)
                return self._response(route, call, route.handler(call, **arguments))

    def _call(self, route: Route, http_request: Request, path: Mapping[str, str]) -> Call:
        token, workspace = ANONYMOUS, "default"
        if route.permission:
            token = g.token = self._authenticator.token_of_headers(http_request.headers)
            if route.has_workspace:
                workspace = g.workspace = self._authenticator.workspace(token, http_request.headers.get("Poolkeeper-Workspace"))
            self._require_permission(route, token, workspace, path)
        return Call(
            self._services,
            token,
            workspace,
            http_request.headers,
            self._disconnect_check(http_request),
            self._process_metrics,
            self._authenticator.is_token_required,
        )

    def _require_permission(self, route: Route, token: Token, workspace: str, path: Mapping[str, str]) -> None:
        assert route.permission
        try:
            self._authenticator.require_permission(token, route.permission)
        except errors.HttpRefusal as refusal:
            if refusal.status == HTTPStatus.TOO_MANY_REQUESTS and route.on_throttled and token.has_permission(route.permission):
                route.on_throttled(self._services, token, workspace, **path)
            raise

    def _disconnect_check(self, http_request: Request) -> Callable[[], bool]:
        sock, headers = http_request.environ.get("gunicorn.socket"), http_request.headers

        def client_disconnected() -> bool:
            return is_disconnected(sock) or not self._is_authenticated(headers)

        return client_disconnected

    def _is_authenticated(self, headers: Headers) -> bool:
        try:
            self._authenticator.token_of_headers(headers)
        except errors.HttpRefusal:
            return False
        except StoreUnavailable:
            pass  # unknown, so the client stays
        return True

    def _arguments(self, route: Route, http_request: Request, path: Mapping[str, str]) -> dict[str, Any]:
        arguments: dict[str, Any] = {name: _path_name(name, value) for name, value in path.items()}
        query = _query(route, http_request.args)
        if route.has_query:
            arguments["query"] = query
        return arguments

    def _response(self, route: Route, call: Call, result: object) -> Response:
        if isinstance(result, Response):
            response = result
        else:
            status, body = result if isinstance(result, tuple) else (route.success_statuses[0], result)
            response = json_response(body, status)
        if call.response_headers:
            response.headers.update(call.response_headers)
        return response

    # ---- around every request

    def start_request(self) -> None:
        """Give the request an id, and start its clock."""
        client_id = request.headers.get("X-Request-Id", "")
        g.request_id = client_id if REQUEST_ID.fullmatch(client_id) else f"{random.getrandbits(64):016x}"  # no secret
        g.start_s = time.perf_counter()

    def finish_request(self, response: Response) -> Response:
        """Count and log the request, and add its id to the response."""
        http_request, context = _flask_request(), g._get_current_object()
        response.headers["X-Request-Id"] = context.request_id
        duration_s = time.perf_counter() - context.start_s
        route: Endpoint | None = context.get("route")
        name = route.path if route else "none"
        method = http_request.method if route else "none"
        self._process_metrics.increment(HTTP_REQUESTS, method, name, str(response.status_code))
        self._process_metrics.observe(HTTP_REQUEST_DURATION, duration_s, method, name)
        if route is None or route.permission:
            token: Token = context.get("token", ANONYMOUS)
            self._access_log.record(
                http_request,
                response.status_code,
                duration_s,
                request_id=context.request_id,
                route=name,
                workspace=context.get("workspace"),
                token=token.name,
            )
        if (sock := http_request.environ.get("gunicorn.socket")) and not response.is_streamed:
            io_deadlines.start_writing(sock.fileno(), response.content_length or 0)
        return response

    def refusal_response(self, error: Exception) -> Response:
        """Return the problem document of an exception. A bug is logged with its trace, and answered with 500."""
        request_id = g.get("request_id")
        reply = errors.problem_reply(error, request_id)
        if isinstance(error, StoreUnavailable):  # logged alone: the text names the address of Redis
            log.warning("%s", error, extra={"request_id": request_id})
        if reply is None:
            log.exception("%s %s failed", request.method, quote(request.path), extra={"request_id": request_id})
            reply = errors.internal_error(request_id)
        response = json_response(reply.body, reply.status, errors.PROBLEM_TYPE, exclude_none=True)
        response.headers.update(reply.headers)
        return response


def json_response(body: object, status: int, kind: str = "application/json", *, exclude_none: bool = False) -> Response:
    """Return the body as JSON; without a body, 204. A model that is also an input is written without its default values."""
    if body is None:
        return Response(status=204, headers=RESPONSE_HEADERS)
    assert isinstance(body, BaseModel)
    text = body.model_dump_json(by_alias=True, exclude_none=exclude_none, exclude_defaults=isinstance(body, StrictModel))
    return Response(text + "\n", status, RESPONSE_HEADERS, kind)


def _flask_request() -> Request:
    """Return the request without the proxy of Flask, which looks it up for every attribute."""
    http_request: Request = request._get_current_object()  # type: ignore[attr-defined]
    return http_request


def _path_name(parameter: str, value: str) -> str:
    pattern = path_pattern(parameter)
    if not re.fullmatch(pattern, value):
        raise errors.MalformedInput([(parameter, PATTERN_TEXTS[pattern])], "the path")
    return value


def _query(route: Route, args: MultiDict[str, str]) -> Any:
    repeatable = route.query_model.repeatable()
    repeated = [(name, "is given more than once") for name in args if name not in repeatable and len(args.getlist(name)) > 1]
    if repeated:
        raise errors.MalformedInput(repeated, "the query")
    if not args:
        return route.query_model()
    try:
        return route.query_model.model_validate(
            {name: args.getlist(name) if name in repeatable else args[name] for name in args}
        )
    except ValidationError as error:
        raise errors.MalformedInput.of(error, "the query", route.query_model) from error


def _body(route: Route, http_request: Request, data: bytes, limit: BodyLimit) -> StrictModel:
    """Return the body as the model of the route."""
    assert route.body_model is not None
    if not data and route.is_body_optional:
        return route.body_model()
    return parse_body(route.body_model, http_request, data, limit)


def is_disconnected(sock: Any) -> bool:
    """True if the client has closed the connection. Data that it has sent stays readable."""
    if not isinstance(sock, socket.socket) or isinstance(sock, ssl.SSLSocket):
        return False
    try:
        return sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True


def event_stream(stream: Iterator[str]) -> Response:
    """Return a response that streams server-sent events."""
    response = Response(stream, mimetype=EVENT_STREAM)
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    return response
