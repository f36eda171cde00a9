"""The views of an application, and the map by which Flask finds the view of a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from flask import Flask, Response
from werkzeug.routing import Map, Rule


@dataclass(frozen=True, slots=True)
class View:
    """A function that Flask calls for requests of one method whose path matches a rule."""

    method: str
    rule: str
    endpoint: str
    """A name, unique in the application."""
    function: Callable[..., Response]


def set_views(app: Flask, views: Sequence[View]) -> None:
    """Make the application serve these views, and nothing else."""
    app.url_map = _url_map(tuple((view.method, view.rule, view.endpoint) for view in views))
    app.view_functions = {view.endpoint: view.function for view in views}
    assert len(app.view_functions) == len(views), "two views have one endpoint"


@cache
def _url_map(rules: tuple[tuple[str, str, str], ...]) -> Map:
    """Return the map of these rules (method, rule, endpoint), which all applications of a process share."""
    # shared, because Werkzeug takes 13 ms to compile it
    rows = [Rule(rule, methods=[method], endpoint=endpoint) for method, rule, endpoint in rules]
    return Map(rows, strict_slashes=True, merge_slashes=False)  # no redirects: another path is a 404
