"""The class Route: a row of the table of routes, completed by the annotations of its handler."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_type_hints

from pydantic import BaseModel
from werkzeug.datastructures import Headers

from app.api.body_limits import SMALL_BODY, BodyLimit
from app.api.metrics.process_metrics import ProcessMetrics
from app.api.schemas.inputs import EmptyBody, NoQuery, QueryModel
from app.bootstrap import Services
from app.domain.field_types import StrictModel
from app.domain.names import NAME_PATTERN, POLICY_PATTERN, TASK_PATTERN
from app.domain.tokens import Permission, Token

EVENT_STREAM = "text/event-stream"


def path_pattern(name: str) -> str:
    """Return the pattern of a path parameter: tasks have longer names, and a component may be a template."""
    return {"task": TASK_PATTERN, "component": POLICY_PATTERN}.get(name, NAME_PATTERN)


@dataclass(slots=True)
class Call:
    """One HTTP request as a handler sees it: the token, the workspace and the services."""

    services: Services
    token: Token
    workspace: str
    headers: Headers
    client_disconnected: Callable[[], bool]
    """True if the connection is closed, or the token is not valid any more."""
    process_metrics: ProcessMetrics
    is_token_required: Callable[[], bool]
    """True if a request without a token is refused at the moment."""
    response_headers: dict[str, str] = field(default_factory=dict)
    """Headers of the response."""


@dataclass(frozen=True)
class Route:
    """A row of the table of routes. The path is relative to the prefix."""

    method: str
    path: str
    permission: Permission | None
    """None: a token is never needed."""
    handler: Callable[..., Any]
    success_statuses: tuple[int, ...] = (200,)
    """The first is the one of a handler that returns a body alone."""
    refusal_statuses: tuple[int, ...] = ()
    """Beside those that follow from the rest of the row."""
    request_headers: tuple[str, ...] = ()
    """Headers that the handler reads."""
    has_workspace: bool = True
    """True if the route is about one workspace, which the token has to be for."""
    media_types: tuple[str, ...] = ("application/json",)
    """Media types of the response."""
    on_throttled: Callable[..., None] | None = None
    """Called with services, token, workspace and path parameters before a call is answered 429."""
    body_limit: BodyLimit = SMALL_BODY
    """The limit of the body."""
    refuses_absent: bool = True
    """True if a path that names no object is answered 404."""
    uses_redis: bool = True
    """True if the route answers 503 while Redis is away."""

    @property
    def name(self) -> str:
        """The endpoint in Flask."""
        return f"{self.method} {self.path}"

    @property
    def tag(self) -> str:
        """The feature, after which the module of the handler is named."""
        return self.handler.__module__.rpartition(".")[2].replace("_", "-")

    @property
    def operation_id(self) -> str:
        """The name of the operation in OpenAPI, and of its handler."""
        return self.handler.__name__

    @property
    def path_names(self) -> tuple[str, ...]:
        """The names of the path parameters."""
        return tuple(re.findall(r"{(\w+)}", self.path))

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.handler)

    @cached_property
    def body_model(self) -> type[StrictModel] | None:
        """The model of the body; None if the route takes none."""
        return self._hints.get("body")

    @cached_property
    def query_model(self) -> type[QueryModel]:
        """The model of the query string."""
        query: type[QueryModel] = self._hints.get("query", NoQuery)
        return query

    @property
    def has_query(self) -> bool:
        """True if the handler takes the query string."""
        return "query" in self._hints

    @cached_property
    def response_model(self) -> type[BaseModel] | None:
        """The model of the response; None if it has no body, or one without a schema."""
        annotation = self._hints["return"]
        kinds = [annotation, *getattr(annotation, "__args__", ())]
        return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)

    @property
    def is_body_optional(self) -> bool:
        """True if an absent body means the same as an empty one."""
        return self.body_model is EmptyBody

    @property
    def failure_statuses(self) -> tuple[int, ...]:
        """Every status of a refusal."""
        statuses = {400, *self.refusal_statuses}  # 400: at least an unknown query parameter
        if self.uses_redis:
            statuses.add(503)
        if self.permission:
            statuses |= {401, 403, 429}
        if self.path_names and self.refuses_absent:
            statuses.add(404)
        if self.body_model:
            statuses |= {413, 415}
        return tuple(sorted(statuses))
