"""The context of a page: the user, the HTTP request and the templates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from flask import Request, Response, redirect
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.bootstrap import Services
from app.dashboard import filters, usage_bars
from app.dashboard.assets import Assets
from app.dashboard.session import User
from app.domain.request_origin import short_id
from app.domain.tokens import ALL_WORKSPACES

PAGE_FRAME, PARTIAL_FRAME = "layout.html", "part.html"
TEMPLATE_DIRECTORY = Path(__file__).parent / "templates"
LISTED_WORKSPACES = 200
"""The most workspaces in the switch."""


class Templates:
    """The Jinja templates with their filters."""

    def __init__(self, assets: Assets) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATE_DIRECTORY),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,  # a newer template does not match older code
        )
        self._environment.globals |= {"asset": assets.url, "part_labels": usage_bars.PART_LABELS}
        for template_filter in (
            filters.moment,
            filters.relative,
            filters.elapsed,
            filters.discipline,
            filters.title,
            filters.owner,
            filters.other_labels,
            short_id,
            filters.duration,
            filters.units,
            filters.component,
            filters.preemptions,
            filters.wait_reason,
            filters.spaced,
            filters.sentence,
            filters.work_end,
        ):
            self._environment.filters[template_filter.__name__] = template_filter

    def render(self, template: str, frame: str = PAGE_FRAME, **variables: Any) -> str:
        """Return a page in the frame, which is the layout of the page or of its live part."""
        return self._environment.get_template(template).render(frame=frame, **variables)


@dataclass(frozen=True, slots=True)
class PageContext:
    """One view of a page by a user."""

    services: Services
    user: User
    http_request: Request
    templates: Templates
    is_authenticated: Callable[[], bool]
    """True if the token is still valid."""

    @property
    def workspace(self) -> str:
        """Return the workspace of the page."""
        return self.user.workspace

    @property
    def is_partial(self) -> bool:
        """True if the browser requests the live part of a page only."""
        return self.http_request.headers.get("HX-Request") == "true"

    def link(self, path: str, **query: object) -> str:
        """Return the URL of a path in this workspace. A parameter that is None is left out."""
        parameters = {name: value for name, value in query.items() if value is not None}
        if self.workspace != self.user.home_workspace:
            parameters["workspace"] = self.workspace
        return f"{path}?{urlencode(parameters, doseq=True)}" if parameters else path

    def render_page(self, template: str, status: int = 200, **variables: Any) -> Response:
        """Return the page, or its live part if the browser requests that only."""
        frame = PARTIAL_FRAME if self.is_partial else PAGE_FRAME
        text = self.templates.render(template, frame, **{**self._common_variables(), **variables})
        return Response(text, status, mimetype="text/html")

    def redirect(self, path: str, **query: object) -> Response:
        """Return a redirect to a path in this workspace."""
        return redirect(self.link(path, **query), 303)  # type: ignore[return-value]  # werkzeug's is Flask's here

    def _common_variables(self) -> dict[str, Any]:
        return {
            "path": self.http_request.path,
            "link": self.link,
            "user": self.user,
            "workspace": self.workspace,
            "workspaces": () if self.is_partial else self.list_workspaces(),
            "current_url": self.http_request.full_path.rstrip("?"),
            "now_ms": self.services.dashboard_queries.read_clock(self.workspace),
            "has_permission": self.user.has_permission,
            "message": None,
        }

    def list_workspaces(self) -> list[str]:
        """Return the first workspaces of the token by name, and always the present one and the home workspace."""
        names = self.user.token.workspaces
        if ALL_WORKSPACES in names:
            names = tuple(self.services.workspaces.list_names())
        always = {self.workspace, self.user.home_workspace}
        others = sorted(set(names) - always)
        return sorted({*always, *others[: LISTED_WORKSPACES - len(always)]})
