"""What a route is: a row of the table, and what its handler's annotations say of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_type_hints

from pydantic import BaseModel
from werkzeug.datastructures import Headers

from app.api.metrics.process_metrics import Counted
from app.api.schemas.inputs import EmptyAsk, Nothing, Query
from app.bootstrap import Services
from app.domain.names import NAME_PATTERN, TASK_PATTERN
from app.domain.specs import Ask
from app.domain.tokens import Permission, Token

STREAM = "text/event-stream"


def path_pattern(what: str) -> str:
    """What may stand in the path where it says so: a task has a longer name than anything else."""
    return TASK_PATTERN if what == "task" else NAME_PATTERN


@dataclass(slots=True)
class Call:
    """One request as a handler sees it: who asks, where, and with what to serve it."""

    services: Services
    token: Token
    workspace: str
    headers: Headers
    gone: Callable[[], bool]
    """Whether the client has hung up, or would not be let in any more."""
    counted: Counted
    token_needed: Callable[[], bool]
    """Whether nobody is let in without a token just now."""
    says: dict[str, str] = field(default_factory=dict)
    """Headers of the answer."""


@dataclass(frozen=True)
class Route:
    """A row: verb, path below the prefix, who may, the function, and what it can say."""

    method: str
    path: str
    may: Permission | None
    """None: everybody, without a token."""
    handler: Callable[..., Any]
    statuses: tuple[int, ...] = (200,)
    """With which it succeeds."""
    refusals: tuple[int, ...] = ()
    """With which it refuses, beside those that follow from what it is."""
    headers: tuple[str, ...] = ()
    """Those of the request that it reads."""
    in_workspace: bool = True
    """Whether it is about one workspace, which the token has to be for."""
    produces: tuple[str, ...] = ("application/json",)
    """The media types it can answer."""

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.method} {self.path}"

    @property
    def tag(self) -> str:
        """What it is about: the module it is in."""
        return self.handler.__module__.rpartition(".")[2]

    @property
    def path_names(self) -> tuple[str, ...]:
        """What stands in the path."""
        return tuple(re.findall(r"{(\w+)}", self.path))

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.handler)

    @cached_property
    def body(self) -> type[Ask] | None:
        """What the body is read as."""
        return self._hints.get("body")

    @cached_property
    def query(self) -> type[Query]:
        """What the query string is read as."""
        query: type[Query] = self._hints.get("query", Nothing)
        return query

    @property
    def takes_query(self) -> bool:
        """Whether the handler wants to see the query string."""
        return "query" in self._hints

    @cached_property
    def answer(self) -> type[BaseModel] | None:
        """What it answers; None is nothing, or nothing with a shape."""
        said = self._hints["return"]
        kinds = [said, *getattr(said, "__args__", ())]
        return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)

    @property
    def body_may_be_absent(self) -> bool:
        """Whether there is nothing that must be said."""
        return self.body is EmptyAsk

    @property
    def failures(self) -> tuple[int, ...]:
        """Every status it refuses with."""
        found = {400, 503, *self.refusals}  # 400 at least for a query parameter it does not know
        if self.may:
            found |= {401, 403, 429}
        if self.path_names:
            found.add(404)
        if self.body:
            found |= {413, 415}
        return tuple(sorted(found))
