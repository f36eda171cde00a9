"""One look at a page: who looks, at what, and how the page is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from flask import Request, Response, redirect
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.bootstrap import Services
from app.dashboard import filters
from app.dashboard.assets import Assets
from app.dashboard.session import User
from app.domain.tokens import ALL_WORKSPACES

PAGE_FRAME, PARTIAL_FRAME = "layout.html", "part.html"
TEMPLATE_DIRECTORY = Path(__file__).parent / "templates"
LISTED_WORKSPACES = 200
"""Workspaces that are offered, at most."""


class Templates:
    """What pages are made of."""

    def __init__(self, assets: Assets) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATE_DIRECTORY),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,  # those of a newer version fit no older code
        )
        self._environment.globals |= {"asset": assets.url}
        for word in (
            filters.moment,
            filters.relative,
            filters.duration,
            filters.units,
            filters.component,
            filters.wait_reason,
            filters.spaced,
        ):
            self._environment.filters[word.__name__] = word

    def render(self, template: str, frame: str = PAGE_FRAME, **what: Any) -> str:
        """A page, whole or the part that changes."""
        return self._environment.get_template(template).render(frame=frame, **what)


@dataclass(frozen=True, slots=True)
class PageContext:
    """What a page is given."""

    services: Services
    user: User
    http_request: Request
    templates: Templates
    is_authenticated: Callable[[], bool]
    """Whether the visitor would still be let in."""

    @property
    def workspace(self) -> str:
        """The one that is looked at."""
        return self.user.workspace

    @property
    def is_partial(self) -> bool:
        """Whether the browser has the page, and wants only what may have changed."""
        return self.http_request.headers.get("HX-Request") == "true"

    def link(self, path: str, **query: object) -> str:
        """An address in this workspace; what is None is not said."""
        said = {name: value for name, value in query.items() if value is not None}
        if self.workspace != self.user.home_workspace:
            said["workspace"] = self.workspace
        return f"{path}?{urlencode(said, doseq=True)}" if said else path

    def render_page(self, template: str, status: int = 200, **what: Any) -> Response:
        """The page, or only its part that changes if that is all that is wanted."""
        text = self.templates.render(template, PARTIAL_FRAME if self.is_partial else PAGE_FRAME, **{**self._common_variables(), **what})
        return Response(text, status, mimetype="text/html")

    def redirect(self, path: str, **query: object) -> Response:
        """On to another page."""
        return redirect(self.link(path, **query), 303)  # type: ignore[return-value]  # werkzeug's is Flask's here

    def _common_variables(self) -> dict[str, Any]:
        return {
            "look": self,
            "link": self.link,
            "visitor": self.user,
            "workspace": self.workspace,
            "workspaces": () if self.is_partial else self.list_workspaces(),
            "here": self.http_request.full_path.rstrip("?"),
            "now_ms": self.services.dashboard_queries.read_clock(self.workspace),
            "may": self.user.has_permission,
            "done": None,
        }

    def list_workspaces(self) -> list[str]:
        """Those the token is for."""
        named = self.user.token.workspaces
        known = self.services.workspaces.list_names() if ALL_WORKSPACES in named else named
        return sorted({*known, self.workspace, self.user.home_workspace})[:LISTED_WORKSPACES]
