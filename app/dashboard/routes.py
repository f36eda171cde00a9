"""The table of pages, and how each is served: the door, the page, what a browser is told to keep to."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import quote, urlencode

from flask import Flask, Request, Response, g, redirect, request

from app.api import errors
from app.api.app import AppContext
from app.api.request_handler import read_deadline
from app.api.server import io_deadlines
from app.dashboard import actions, live_updates, pages, sign_in
from app.dashboard.assets import Assets
from app.dashboard.page_context import Look, Paper
from app.dashboard.session import Door, check_may, greet
from app.domain.errors import NotFound, StoreUnavailable
from app.domain.names import is_name
from app.domain.tokens import Permission

log = logging.getLogger("poolkeeper.dashboard")

READ, ACT, DROP, ADJUST = Permission.READ, Permission.ACT, Permission.DROP, Permission.ADJUST

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with none at all, browsers would not say where a form comes from
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

Handler: TypeAlias = Callable[..., Response]


@dataclass(frozen=True, slots=True)
class Page:
    """A row of the table."""

    method: str
    rule: str
    may: Permission | None
    """None: everybody, signed in or not."""
    handler: Handler

    @property
    def path(self) -> str:
        """What it is called where requests are counted."""
        return f"dashboard {self.rule}"


PAGES: tuple[Page, ...] = (
    Page("GET", "/", READ, pages.pools),
    Page("GET", "/pools/<pool>", READ, pages.pool),
    Page("GET", "/pools/<pool>/history", READ, pages.history),
    Page("GET", "/requests/<request>", READ, pages.request),
    Page("GET", "/events", READ, pages.events),
    Page("GET", "/live", READ, live_updates.stream),
    Page("GET", "/requests/<request>/cancel", ACT, actions.cancel),
    Page("POST", "/requests/<request>/cancel", ACT, actions.cancel),
    Page("GET", "/requests/<request>/drop", DROP, actions.drop),
    Page("POST", "/requests/<request>/drop", DROP, actions.drop),
    Page("GET", "/pools/<pool>/resize", ADJUST, actions.resize),
    Page("POST", "/pools/<pool>/resize", ADJUST, actions.resize),
    Page("GET", "/pools/<pool>/policies/<kind>/<component>", ADJUST, actions.policy),
    Page("POST", "/pools/<pool>/policies/<kind>/<component>", ADJUST, actions.policy),
)

ENTRANCE: tuple[Page, ...] = (
    Page("GET", "/sign-in", None, sign_in.ask),
    Page("POST", "/sign-in", None, sign_in.sign_in),
    Page("POST", "/sign-out", None, sign_in.sign_out),
)
"""Pages that are there for who is not let in."""


def add(ground: AppContext) -> None:
    """The dashboard, beside the API."""
    site = Site(ground)
    for page in (*PAGES, *ENTRANCE):
        ground.app.add_url_rule(page.rule, f"{page.method} {page.path}", site.view(page), methods=[page.method])
    ground.app.add_url_rule("/assets/<name>", "dashboard assets", site.asset, methods=["GET"])


class Site:
    """Serves pages."""

    def __init__(self, ground: AppContext) -> None:
        self._services, self._access = ground.services, ground.authenticator
        self._door, self._assets = Door(ground.authenticator), Assets()
        self._paper = Paper(self._assets)
        self._app: Flask = ground.app

    def view(self, page: Page) -> Handler:
        """The function that Flask calls for a page."""

        def serve(**path: str) -> Response:
            asked: Request = request._get_current_object()  # type: ignore[attr-defined]
            g.route = page
            if sock := asked.environ.get("gunicorn.socket"):
                io_deadlines.finish(sock.fileno())  # what it said so far is here
            try:
                response = self._serve(page, asked, path)
            except Exception as error:
                response = self._refused(asked, error)
            response.headers.update(HEADERS)
            response.headers.setdefault("Cache-Control", "no-store")
            greet(response, asked)
            return response

        return serve

    def asset(self, name: str) -> Response:
        """A file of the pages."""
        response = self._assets.serve(name)
        response.headers.update(HEADERS)
        return response

    def _serve(self, page: Page, asked: Request, path: dict[str, str]) -> Response:
        self._read(asked)
        if page.may is None:
            return page.handler(sign_in.Hall(self._door, self._access, asked, self._paper))
        token = g.token = self._door.token(asked)
        visitor = self._door.visitor(asked, token, READ)
        g.workspace = visitor.workspace
        check_may(visitor, page.may)
        if asked.method == "POST":
            self._door.check_form(asked)
        _check_names(path)
        return page.handler(Look(self._services, visitor, asked, self._paper, self._stays(asked)), **path)

    def _read(self, asked: Request) -> None:
        """The whole body, for as long as the client may take over it."""
        if asked.method == "POST":
            with read_deadline(asked):
                len(asked.form)

    def _stays(self, asked: Request) -> Callable[[], bool]:
        def welcome() -> bool:
            try:
                self._door.token(asked)
            except errors.HttpRefusal:
                return False
            except StoreUnavailable:
                pass  # nobody can tell
            return True

        return welcome

    def _refused(self, asked: Request, error: Exception) -> Response:
        """Who is not let in may sign in; any other refusal is a page that says why."""
        refused = errors.problem_reply(error, g.get("request_id"))
        if isinstance(error, StoreUnavailable):
            log.warning("%s", error, extra={"request_id": g.get("request_id")})
        if refused is None:
            log.exception("%s %s failed", asked.method, quote(asked.path), extra={"request_id": g.get("request_id")})
            refused = errors.internal_error(g.get("request_id"))
        if refused.status == 401:
            return _to_the_door(asked)
        text = self._paper.made("refused.html", problem=refused.body)
        response = Response(text, refused.status, mimetype="text/html")
        response.headers.update({name: value for name, value in refused.headers.items() if name == "Retry-After"})
        return response


def _to_the_door(asked: Request) -> Response:
    back = asked.full_path.rstrip("?") if asked.method == "GET" and not asked.path.startswith("/live") else "/"
    where = "/sign-in?" + urlencode({"next": back})
    if asked.headers.get("HX-Request") == "true":  # a redirect would be followed, and the door put into the page
        return Response(status=401, headers={"HX-Redirect": where})
    return redirect(where, 303)  # type: ignore[return-value]


def _check_names(path: dict[str, str]) -> None:
    for kind, name in path.items():
        if not is_name(name):
            raise NotFound(kind, ascii(name)[:80])
