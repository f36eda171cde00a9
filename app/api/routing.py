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
    """Return the pattern of a path parameter. Tasks have longer names, and a component may be a policy template."""
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
    """The permission that the token needs; None: no token is needed."""
    handler: Callable[..., Any]
    success_statuses: tuple[int, ...] = (200,)
    """The statuses of success. A handler that returns a body only has the first."""
    refusal_statuses: tuple[int, ...] = ()
    """The statuses of refusals that do not follow from the other fields."""
    request_headers: tuple[str, ...] = ()
    """The headers that the handler reads."""
    has_workspace: bool = True
    """True if the route is about one workspace, to which the token needs access."""
    media_types: tuple[str, ...] = ("application/json",)
    """The media types of the response."""
    on_throttled: Callable[..., None] | None = None
    """A function that is called with services, token, workspace and path parameters before a call is refused with 429."""
    body_limit: BodyLimit = SMALL_BODY
    """The limit of the body."""
    refuses_absent: bool = True
    """True if the route answers 404 for an object that does not exist."""
    uses_redis: bool = True
    """True if the route answers 503 while Redis is not available."""

    @property
    def name(self) -> str:
        """Return the name of the endpoint in Flask."""
        return f"{self.method} {self.path}"

    @property
    def tag(self) -> str:
        """Return the feature, which is the name of the handler's module."""
        return self.handler.__module__.rpartition(".")[2].replace("_", "-")

    @property
    def operation_id(self) -> str:
        """Return the name of the operation in OpenAPI, which is that of its handler."""
        return self.handler.__name__

    @property
    def path_names(self) -> tuple[str, ...]:
        """Return the names of the path parameters."""
        return tuple(re.findall(r"{(\w+)}", self.path))

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.handler)

    @cached_property
    def body_model(self) -> type[StrictModel] | None:
        """Return the model of the body; None if the route has no body."""
        return self._hints.get("body")

    @cached_property
    def query_model(self) -> type[QueryModel]:
        """Return the model of the query string."""
        query: type[QueryModel] = self._hints.get("query", NoQuery)
        return query

    @property
    def has_query(self) -> bool:
        """True if the handler takes the query string."""
        return "query" in self._hints

    @cached_property
    def response_model(self) -> type[BaseModel] | None:
        """Return the model of the response; None without a body, or for a body without a schema."""
        annotation = self._hints["return"]
        kinds = [annotation, *getattr(annotation, "__args__", ())]
        return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)

    @property
    def is_body_optional(self) -> bool:
        """True if an absent body is the same as an empty one."""
        return self.body_model is EmptyBody

    @property
    def failure_statuses(self) -> tuple[int, ...]:
        """Return every status of a refusal."""
        statuses = {400, *self.refusal_statuses}  # 400: any route refuses an unknown query parameter
        if self.uses_redis:
            statuses.add(503)
        if self.permission:
            statuses |= {401, 403, 429}
        if self.path_names and self.refuses_absent:
            statuses.add(404)
        if self.body_model:
            statuses |= {413, 415}
        return tuple(sorted(statuses))
