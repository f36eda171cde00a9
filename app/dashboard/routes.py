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
from app.dashboard.page_context import PageContext, Templates
from app.dashboard.session import Session, require_user_permission, set_visit_cookie
from app.domain.errors import NotFound, StoreUnavailable
from app.domain.names import is_name
from app.domain.tokens import Permission

log = logging.getLogger("poolkeeper.dashboard")

READ, ACT, DROP, ADJUST = Permission.READ, Permission.ACT, Permission.DROP, Permission.ADJUST

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with none at all, browsers would not say where a form comes from
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

PageHandler: TypeAlias = Callable[..., Response]


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A row of the table."""

    method: str
    rule: str
    permission: Permission | None
    """None: everybody, signed in or not."""
    handler: PageHandler

    @property
    def path(self) -> str:
        """What it is called where requests are counted."""
        return f"dashboard {self.rule}"


PAGES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/", READ, pages.show_pools),
    PageRoute("GET", "/pools/<pool>", READ, pages.show_pool),
    PageRoute("GET", "/pools/<pool>/history", READ, pages.plot_data),
    PageRoute("GET", "/requests/<request>", READ, pages.show_request),
    PageRoute("GET", "/events", READ, pages.show_events),
    PageRoute("GET", "/live", READ, live_updates.stream_changes),
    PageRoute("GET", "/requests/<request>/cancel", ACT, actions.cancel_request),
    PageRoute("POST", "/requests/<request>/cancel", ACT, actions.cancel_request),
    PageRoute("GET", "/requests/<request>/drop", DROP, actions.drop_request),
    PageRoute("POST", "/requests/<request>/drop", DROP, actions.drop_request),
    PageRoute("GET", "/pools/<pool>/resize", ADJUST, actions.resize_pool),
    PageRoute("POST", "/pools/<pool>/resize", ADJUST, actions.resize_pool),
    PageRoute("GET", "/pools/<pool>/policies/<kind>/<component>", ADJUST, actions.change_policy),
    PageRoute("POST", "/pools/<pool>/policies/<kind>/<component>", ADJUST, actions.change_policy),
)

SIGN_IN_PAGES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/sign-in", None, sign_in.show_form),
    PageRoute("POST", "/sign-in", None, sign_in.sign_in),
    PageRoute("POST", "/sign-out", None, sign_in.sign_out),
)
"""Pages that are there for who is not let in."""


def add_dashboard(context: AppContext) -> None:
    """The dashboard, beside the API."""
    dashboard = Dashboard(context)
    for page in (*PAGES, *SIGN_IN_PAGES):
        context.app.add_url_rule(page.rule, f"{page.method} {page.path}", dashboard.view(page), methods=[page.method])
    context.app.add_url_rule("/assets/<name>", "dashboard assets", dashboard.asset, methods=["GET"])


class Dashboard:
    """Serves pages."""

    def __init__(self, context: AppContext) -> None:
        self._services, self._authenticator = context.services, context.authenticator
        self._session, self._assets = Session(context.authenticator), Assets()
        self._templates = Templates(self._assets)
        self._app: Flask = context.app

    def view(self, page: PageRoute) -> PageHandler:
        """The function that Flask calls for a page."""

        def serve(**path: str) -> Response:
            asked: Request = request._get_current_object()  # type: ignore[attr-defined]
            g.route = page
            if sock := asked.environ.get("gunicorn.socket"):
                io_deadlines.finish(sock.fileno())  # what it said so far is here
            try:
                response = self._serve(page, asked, path)
            except Exception as error:
                response = self._refusal_response(asked, error)
            response.headers.update(HEADERS)
            response.headers.setdefault("Cache-Control", "no-store")
            set_visit_cookie(response, asked)
            return response

        return serve

    def asset(self, name: str) -> Response:
        """A file of the pages."""
        response = self._assets.serve(name)
        response.headers.update(HEADERS)
        return response

    def _serve(self, page: PageRoute, asked: Request, path: dict[str, str]) -> Response:
        self._read_form(asked)
        if page.permission is None:
            return page.handler(sign_in.SignInContext(self._session, self._authenticator, asked, self._templates))
        token = g.token = self._session.token(asked)
        visitor = self._session.user(asked, token, READ)
        g.workspace = visitor.workspace
        require_user_permission(visitor, page.permission)
        if asked.method == "POST":
            self._session.require_own_form(asked)
        _check_names(path)
        return page.handler(PageContext(self._services, visitor, asked, self._templates, self._token_check(asked)), **path)

    def _read_form(self, asked: Request) -> None:
        """The whole body, for as long as the client may take over it."""
        if asked.method == "POST":
            with read_deadline(asked):
                len(asked.form)

    def _token_check(self, asked: Request) -> Callable[[], bool]:
        def welcome() -> bool:
            try:
                self._session.token(asked)
            except errors.HttpRefusal:
                return False
            except StoreUnavailable:
                pass  # nobody can tell
            return True

        return welcome

    def _refusal_response(self, asked: Request, error: Exception) -> Response:
        """Who is not let in may sign in; any other refusal is a page that says why."""
        refused = errors.problem_reply(error, g.get("request_id"))
        if isinstance(error, StoreUnavailable):
            log.warning("%s", error, extra={"request_id": g.get("request_id")})
        if refused is None:
            log.exception("%s %s failed", asked.method, quote(asked.path), extra={"request_id": g.get("request_id")})
            refused = errors.internal_error(g.get("request_id"))
        if refused.status == 401:
            return _redirect_to_sign_in(asked)
        text = self._templates.render("refused.html", problem=refused.body)
        response = Response(text, refused.status, mimetype="text/html")
        response.headers.update({name: value for name, value in refused.headers.items() if name == "Retry-After"})
        return response


def _redirect_to_sign_in(asked: Request) -> Response:
    back = asked.full_path.rstrip("?") if asked.method == "GET" and not asked.path.startswith("/live") else "/"
    where = "/sign-in?" + urlencode({"next": back})
    if asked.headers.get("HX-Request") == "true":  # a redirect would be followed, and the door put into the page
        return Response(status=401, headers={"HX-Redirect": where})
    return redirect(where, 303)  # type: ignore[return-value]


def _check_names(path: dict[str, str]) -> None:
    for kind, name in path.items():
        if not is_name(name):
            raise NotFound(kind, ascii(name)[:80])
