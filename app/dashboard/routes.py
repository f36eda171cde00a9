"""The table of pages, and the server of pages: session, page and security headers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

from flask import Request, Response, g, redirect, request
from werkzeug.exceptions import NotFound as HttpNotFound

from app.api import errors
from app.api.app import AppContext
from app.api.request_body import read_form
from app.api.routes import PREFIX
from app.api.server import io_deadlines
from app.api.views import View
from app.dashboard import actions, event_list, live_updates, pages, request_list, sign_in
from app.dashboard.assets import Assets
from app.dashboard.page_context import PageContext, Templates
from app.dashboard.session import Session, require_user_permission, set_visit_cookie
from app.domain.errors import NotFound, StoreUnavailable
from app.domain.names import is_name, is_policy_name
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
    "Referrer-Policy": "same-origin",  # without it browsers send no Origin with a form
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

PageHandler: TypeAlias = Callable[..., Response]


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A row of the table of pages."""

    method: str
    rule: str
    permission: Permission | None
    """The permission that the user needs; None: no sign-in is needed."""
    handler: PageHandler

    @property
    def path(self) -> str:
        """Return the name of the route in metrics and log."""
        return f"dashboard {self.rule}"


PAGES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/", READ, pages.show_pools),
    PageRoute("GET", "/pools/<pool>", READ, pages.show_pool),
    PageRoute("GET", "/pools/<pool>/history", READ, pages.plot_data),
    PageRoute("GET", "/requests", READ, request_list.show_requests),
    PageRoute("GET", "/requests/<request>", READ, pages.show_request),
    PageRoute("GET", "/events", READ, event_list.show_events),
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
"""The pages that need no session."""


def add_dashboard(context: AppContext) -> list[View]:
    """Return the views of the dashboard."""
    dashboard = Dashboard(context)
    views = [
        View(page.method, page.rule, f"{page.method} {page.path}", dashboard.view(page)) for page in (*PAGES, *SIGN_IN_PAGES)
    ]
    context.error_pages.append(dashboard.missing_page)
    return [*views, View("GET", "/assets/<name>", "dashboard assets", dashboard.asset)]


class Dashboard:
    """The server of all pages."""

    def __init__(self, context: AppContext) -> None:
        self._services, self._authenticator = context.services, context.authenticator
        self._session, self._assets = Session(context.authenticator), Assets()
        self._templates = Templates(self._assets)

    def view(self, page: PageRoute) -> PageHandler:
        """Return the function that Flask calls for a page."""

        def serve(**path: str) -> Response:
            http_request: Request = request._get_current_object()  # type: ignore[attr-defined]
            g.route = page
            if sock := http_request.environ.get("gunicorn.socket"):
                io_deadlines.finish(sock.fileno())  # the head of the request has been read
            try:
                response = self._serve(page, http_request, path)
            except Exception as error:
                response = self._refusal_response(http_request, error)
            response.headers.update(HEADERS)
            response.headers.setdefault("Cache-Control", "no-store")
            set_visit_cookie(response, http_request)
            return response

        return serve

    def missing_page(self, error: Exception) -> Response | None:
        """Return the page for an unknown path if the client is a browser; None for other clients and other errors."""
        http_request: Request = request._get_current_object()  # type: ignore[attr-defined]
        is_browser = http_request.method in ("GET", "HEAD") and "text/html" in http_request.headers.get("Accept", "")
        if not isinstance(error, HttpNotFound) or not is_browser or http_request.path.startswith(f"{PREFIX}/"):
            return None
        refusal = NotFound("page", http_request.path[:80])
        response = self._refusal_response(http_request, refusal)
        response.headers.update(HEADERS)
        return response

    def asset(self, name: str) -> Response:
        """Return an asset file."""
        response = self._assets.serve(name)
        response.headers.update(HEADERS)
        return response

    def _serve(self, page: PageRoute, http_request: Request, path: dict[str, str]) -> Response:
        if http_request.method == "POST":
            read_form(http_request)
        if page.permission is None:
            return page.handler(sign_in.SignInContext(self._session, self._authenticator, http_request, self._templates))
        token = g.token = self._session.token(http_request)
        user = self._session.user(http_request, token, READ)
        g.workspace = user.workspace
        context = g.page_context = PageContext(
            self._services, user, http_request, self._templates, self._token_check(http_request)
        )
        require_user_permission(user, page.permission)
        if http_request.method == "POST":
            self._session.require_own_form(http_request)
        _check_names(path)
        return page.handler(context, **path)

    def _token_check(self, http_request: Request) -> Callable[[], bool]:
        def is_authenticated() -> bool:
            try:
                self._session.token(http_request)
            except errors.HttpRefusal:
                return False
            except StoreUnavailable:
                pass  # unknown, so the stream stays
            return True

        return is_authenticated

    def _refusal_response(self, http_request: Request, error: Exception) -> Response:
        """Return the page of a refusal; a refusal for want of a token leads to the sign-in page."""
        reply = errors.problem_reply(error, g.get("request_id"))
        if isinstance(error, StoreUnavailable):
            log.warning("%s", error, extra={"request_id": g.get("request_id")})
        if reply is None:
            log.exception(
                "%s %s failed", http_request.method, quote(http_request.path), extra={"request_id": g.get("request_id")}
            )
            reply = errors.internal_error(g.get("request_id"))
        if reply.status == 401:
            return _redirect_to_sign_in(http_request)
        text = self._templates.render(
            "refused.html", problem=reply.body, **_header_variables(http_request, g.get("page_context"))
        )
        response = Response(text, reply.status, mimetype="text/html")
        response.headers.update({name: value for name, value in reply.headers.items() if name == "Retry-After"})
        return response


def _header_variables(http_request: Request, context: PageContext | None) -> dict[str, Any]:
    """Return the variables of the page header without a call of Redis, which may be unavailable."""
    user = context.user if context else None
    return {
        "path": http_request.path,
        "link": context.link if context else lambda path, **_: path,
        "user": user,
        "workspace": user.workspace if user else None,
        "workspaces": (),
        "message": None,
    }


def _redirect_to_sign_in(http_request: Request) -> Response:
    next_path = (
        http_request.full_path.rstrip("?")
        if http_request.method == "GET" and not http_request.path.startswith("/live")
        else "/"
    )
    location = "/sign-in?" + urlencode({"next": next_path})
    if http_request.headers.get("HX-Request") == "true":  # htmx would follow a redirect and put the form into the page
        return Response(status=401, headers={"HX-Redirect": location})
    return redirect(location, 303)  # type: ignore[return-value]


def _check_names(path: dict[str, str]) -> None:
    for kind, name in path.items():
        if not (is_policy_name if kind == "component" else is_name)(name):
            raise NotFound(kind, ascii(name)[:80])
