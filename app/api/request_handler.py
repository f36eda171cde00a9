"""From a request to a handler and back: the door, the arguments, the answer, the line in the log."""

from __future__ import annotations

import logging
import random
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import quote

from flask import Request, Response, g, request
from pydantic import BaseModel, ValidationError
from werkzeug.datastructures import Headers, MultiDict
from werkzeug.exceptions import RequestEntityTooLarge

from app.api import errors
from app.api.auth import Access
from app.api.metrics.process_metrics import Counted
from app.api.routing import STREAM, Call, Route, path_pattern
from app.api.server import io_deadlines
from app.bootstrap import Services
from app.domain.names import RULES
from app.domain.specs import Ask
from app.domain.tokens import ANYBODY, Permission, Token
from app.store.connection import StoreUnavailable

access_log = logging.getLogger("poolkeeper.access")
log = logging.getLogger("poolkeeper.api")

PLAIN = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Of every answer that is made here: it is true for this moment only, and it is what it says."""
JSON = re.compile(r"application/(?:[\w.+-]+\+)?json", re.ASCII)
REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class Served(Protocol):
    """What is counted and logged of what serves a request, be it a route or a page: what it is called, and who may."""

    @property
    def path(self) -> str: ...
    @property
    def may(self) -> Permission | None: ...


class Dispatch:
    """Serves routes."""

    def __init__(self, services: Services, access: Access, counted: Counted) -> None:
        self._services, self._access, self._counted = services, access, counted

    def view(self, route: Route) -> Callable[..., Response]:
        """The function that Flask calls for a route."""

        def serve(**path: str) -> Response:
            asked = _asked()
            g.route = route
            if sock := asked.environ.get("gunicorn.socket"):
                io_deadlines.done(sock.fileno())  # what it said so far is here
            return self._serve(route, asked, path)

        return serve

    def _serve(self, route: Route, asked: Request, path: Mapping[str, str]) -> Response:
        call = self._call(route, asked)
        return self._answer(route, call, route.handler(call, **self._arguments(route, asked, path)))

    def _call(self, route: Route, asked: Request) -> Call:
        token, workspace = ANYBODY, "default"
        if route.may:
            token = g.token = self._access.caller(asked.headers, asked.host)
            if route.in_workspace:
                workspace = g.workspace = self._access.workspace(token, asked.headers.get("Poolkeeper-Workspace"))
            self._access.allow(token, route.may)
        gone, needed = self._gone(asked), self._access.needs_token
        return Call(self._services, token, workspace, asked.headers, gone, self._counted, needed)

    def _gone(self, asked: Request) -> Callable[[], bool]:
        sock, headers, host = asked.environ.get("gunicorn.socket"), asked.headers, asked.host

        def gone() -> bool:
            return has_hung_up(sock) or not self._is_welcome(headers, host)

        return gone

    def _is_welcome(self, headers: Headers, host: str) -> bool:
        try:
            self._access.caller(headers, host)
        except errors.Refusal:
            return False
        except StoreUnavailable:
            pass  # nobody can tell
        return True

    def _arguments(self, route: Route, asked: Request, path: Mapping[str, str]) -> dict[str, Any]:
        given: dict[str, Any] = {name: _name(name, value) for name, value in path.items()}
        query = _query(route, asked.args)
        if route.takes_query:
            given["query"] = query
        if route.body:
            with being_read(asked):
                data = _data(asked)
            given["body"] = _body(route.body, asked, data, absent_is_empty=route.body_may_be_absent)
        return given

    def _answer(self, route: Route, call: Call, answer: object) -> Response:
        if isinstance(answer, Response):
            response = answer
        else:
            status, body = answer if isinstance(answer, tuple) else (route.statuses[0], answer)
            response = written(body, status)
        if call.says:
            response.headers.update(call.says)
        return response

    # ---- around every request

    def begin(self) -> None:
        """Give the request an id, and start its clock."""
        given = request.headers.get("X-Request-Id", "")
        g.request_id = given if REQUEST_ID.fullmatch(given) else f"{random.getrandbits(64):016x}"  # to be found by, no secret
        g.begun = time.perf_counter()

    def end(self, response: Response) -> Response:
        """Count it, log it, and say its id."""
        asked, here = _asked(), g._get_current_object()
        response.headers["X-Request-Id"] = here.request_id
        taken_s = time.perf_counter() - here.begun
        route: Served | None = here.get("route")
        name = route.path if route else "none"
        self._counted.request(asked.method if route else "none", name, response.status_code, taken_s)
        if route is None or route.may:
            token: Token = here.get("token", ANYBODY)
            access_log.info(
                "%s %s %s",
                asked.method,
                quote(asked.path),  # whatever is in it, it is one line
                response.status_code,
                extra={
                    "request_id": here.request_id,
                    "route": name,
                    "status": response.status_code,
                    "ms": round(taken_s * 1000, 2),
                    "workspace": here.get("workspace"),
                    "token": token.name,
                },
            )
        if (sock := asked.environ.get("gunicorn.socket")) and not response.is_streamed:
            io_deadlines.writing(sock.fileno(), response.content_length or 0)
        return response

    def refuse(self, error: Exception) -> Response:
        """The problem document of an error; a bug is logged with its trace, and said to be one."""
        request_id = g.get("request_id")
        refused = errors.reply(error, request_id)
        if isinstance(error, StoreUnavailable):  # its words are for who runs the service: they say where Redis is
            log.warning("%s", error, extra={"request_id": request_id})
        if refused is None:
            log.exception("%s %s failed", request.method, quote(request.path), extra={"request_id": request_id})
            refused = errors.bug(request_id)
        response = written(refused.body, refused.status, errors.PROBLEM_TYPE, exclude_none=True)
        response.headers.update(refused.headers)
        return response


def written(body: object, status: int, kind: str = "application/json", *, exclude_none: bool = False) -> Response:
    """An answer as JSON; None is no content. What is both asked and answered leaves out what goes without saying."""
    if body is None:
        return Response(status=204, headers=PLAIN)
    assert isinstance(body, BaseModel)
    text = body.model_dump_json(by_alias=True, exclude_none=exclude_none, exclude_defaults=isinstance(body, Ask))
    return Response(text + "\n", status, PLAIN, kind)


def _asked() -> Request:
    """The request itself: Flask's stand-in for it looks it up again for every attribute."""
    asked: Request = request._get_current_object()  # type: ignore[attr-defined]
    return asked


def _name(what: str, value: str) -> str:
    pattern = path_pattern(what)
    if not re.fullmatch(pattern, value):
        raise errors.Malformed([(what, RULES[pattern])], "the path")
    return value


def _query(route: Route, given: MultiDict[str, str]) -> Any:
    repeatable = route.query.repeatable()
    twice = [(name, "is given more than once") for name in given if name not in repeatable and len(given.getlist(name)) > 1]
    if twice:
        raise errors.Malformed(twice, "the query")
    if not given:
        return route.query()
    try:
        return route.query.model_validate({name: given.getlist(name) if name in repeatable else given[name] for name in given})
    except ValidationError as wrong:
        raise errors.Malformed.of(wrong, "the query") from wrong


@contextmanager
def being_read(asked: Request) -> Iterator[None]:
    """For as long as the client sends something."""
    sock = asked.environ.get("gunicorn.socket")
    if sock:
        io_deadlines.begun(sock.fileno())
    try:
        yield
    finally:
        if sock:
            io_deadlines.done(sock.fileno())


def _body(kind: type[Ask], asked: Request, data: bytes, *, absent_is_empty: bool) -> Ask:
    if not data and absent_is_empty:
        return kind()
    if asked.environ.get("CONTENT_TYPE") != "application/json" and not JSON.fullmatch(asked.mimetype):
        raise errors.Refusal(415, "not_json", "the body has to be JSON, and Content-Type to say so: application/json")
    if not data:
        raise errors.Malformed([("", "is empty, and has to be JSON")])
    try:
        return kind.model_validate_json(data)
    except ValidationError as wrong:
        raise errors.Malformed.of(wrong) from wrong


def _data(asked: Request) -> bytes:
    """The body. One whose length was not announced is cut off by werkzeug at its limit without a word, so that is one more."""
    limit, length = (asked.max_content_length or 0) - 1, asked.environ.get("CONTENT_LENGTH", "")
    if length.isdecimal() and len(length) < 16 and int(length) <= limit:  # as it mostly is; werkzeug's way costs much more
        return bytes(asked.environ["wsgi.input"].read(int(length)))
    try:
        data = asked.get_data(cache=False)
    except RequestEntityTooLarge:
        data = None
    if data is None or len(data) > limit:
        raise errors.Refusal(413, "body_too_large", f"a body may have {limit} bytes")
    return data


def has_hung_up(sock: Any) -> bool:
    """Whether the other end of a connection is closed; whatever it sent stays to be read."""
    if not isinstance(sock, socket.socket) or isinstance(sock, ssl.SSLSocket):
        return False
    try:
        return sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True


def endless(stream: Iterator[str]) -> Response:
    """A stream of events."""
    response = Response(stream, mimetype=STREAM)
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    return response
