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
from app.dashboard.session import Visitor
from app.domain.tokens import ALL_WORKSPACES

WHOLE, PART = "layout.html", "part.html"
TEMPLATES = Path(__file__).parent / "templates"
SWITCHED = 200
"""Workspaces that are offered, at most."""


class Paper:
    """What pages are made of."""

    def __init__(self, assets: Assets) -> None:
        self._templates = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,  # those of a newer version fit no older code
        )
        self._templates.globals |= {"asset": assets.url}
        for word in (
            filters.moment,
            filters.relative,
            filters.duration,
            filters.units,
            filters.component,
            filters.verdict,
            filters.spoken,
        ):
            self._templates.filters[word.__name__] = word

    def made(self, template: str, frame: str = WHOLE, **what: Any) -> str:
        """A page, whole or the part that changes."""
        return self._templates.get_template(template).render(frame=frame, **what)


@dataclass(frozen=True, slots=True)
class Look:
    """What a page is given."""

    services: Services
    visitor: Visitor
    asked: Request
    paper: Paper
    stays: Callable[[], bool]
    """Whether the visitor would still be let in."""

    @property
    def workspace(self) -> str:
        """The one that is looked at."""
        return self.visitor.workspace

    @property
    def wants_part(self) -> bool:
        """Whether the browser has the page, and wants only what may have changed."""
        return self.asked.headers.get("HX-Request") == "true"

    def link(self, path: str, **query: object) -> str:
        """An address in this workspace; what is None is not said."""
        said = {name: value for name, value in query.items() if value is not None}
        if self.workspace != self.visitor.home:
            said["workspace"] = self.workspace
        return f"{path}?{urlencode(said, doseq=True)}" if said else path

    def page(self, template: str, status: int = 200, **what: Any) -> Response:
        """The page, or only its part that changes if that is all that is wanted."""
        text = self.paper.made(template, PART if self.wants_part else WHOLE, **{**self._everywhere(), **what})
        return Response(text, status, mimetype="text/html")

    def lead(self, path: str, **query: object) -> Response:
        """On to another page."""
        return redirect(self.link(path, **query), 303)  # type: ignore[return-value]  # werkzeug's is Flask's here

    def _everywhere(self) -> dict[str, Any]:
        return {
            "look": self,
            "link": self.link,
            "visitor": self.visitor,
            "workspace": self.workspace,
            "workspaces": () if self.wants_part else self.workspaces(),
            "here": self.asked.full_path.rstrip("?"),
            "now_ms": self.services.dashboard_queries.read_clock(self.workspace),
            "may": self.visitor.may,
            "done": None,
        }

    def workspaces(self) -> list[str]:
        """Those the token is for."""
        named = self.visitor.token.workspaces
        known = self.services.workspaces.list_names() if ALL_WORKSPACES in named else named
        return sorted({*known, self.workspace, self.visitor.home})[:SWITCHED]
