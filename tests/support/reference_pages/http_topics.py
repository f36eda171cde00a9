"""The pages of the HTTP reference: which tags stand on which page, and where each object is described."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from app.api.routes import AT_ROOT, PREFIX, ROUTES
from app.api.routing import Route
from tests.support.doc_pages import anchor_of
from tests.support.reference_pages.json_schema import REFERENCE, Schema, document, references, schema_of, title_of

Operation: TypeAlias = tuple[Route, str, Schema]
"""A route, its whole path, and its operation in the OpenAPI document."""


@dataclass(frozen=True)
class Topic:
    """A page of the HTTP reference."""

    name: str
    """The file, without the suffix."""
    title: str
    purpose: str
    tags: tuple[str, ...]
    """The tags of its routes."""
    has_fences: bool = False
    """True if its routes are those of the tags whose body has a fence; else it has the other ones."""


TOPICS = (
    Topic("requests", "HTTP: requests", "Submit, read, cancel and drop requests.", ("requests",)),
    Topic(
        "allocations",
        "HTTP: allocations",
        "Hold, use and release the units of a granted request, under its fence.",
        ("requests",),
        has_fences=True,
    ),
    Topic(
        "pools",
        "HTTP: pools",
        "Create, read, change and delete pools; read their queues.",
        ("pools",),
    ),
    Topic("shares", "HTTP: shares and usage", "Read the shares and the past use of a pool.", ("pool-shares", "usage-history")),
    Topic("policies", "HTTP: policies and groups", "Connect components to pools, and group them.", ("policies", "groups")),
    Topic("declaration", "HTTP: declarations", "Export, plan and apply all pools of a workspace at once.", ("declarations",)),
    Topic(
        "explain",
        "HTTP: explanations, estimates and dry runs",
        "Ask why a request waits, when it may start, and what a change would do.",
        ("explain", "dry-run"),
    ),
    Topic("tasks", "HTTP: tasks", "Park Celery tasks until their requests are granted.", ("tasks",)),
    Topic("events", "HTTP: events", "Read or follow the events of a workspace.", ("events",)),
    Topic(
        "workspace",
        "HTTP: workspace, token and health",
        "Read and change the workspace; read the token, the health and the metrics.",
        ("workspaces", "health"),
    ),
)

ELSEWHERE: Mapping[str, str] = {
    "AccountSettings": "[settings](../pool-settings.md#groups-and-policies)",
    "GroupSettings": "[settings](../pool-settings.md#groups-and-policies)",
    "PoolSettings": "[settings](../pool-settings.md#pools)",
    "RequestState": "[state](../states.md)",
    "WaitReason": "[verdict](../reasons.md#waiting)",
    "Problem": "[problem](../errors.md#fields)",
    "EventResponse": "[event](../events.md#fields)",
    "TimelineEntryResponse": "[event](../events.md#fields)",
}
"""Objects that another page of the reference describes."""
MANY_WORDS = 8
FEWEST_BASE_FIELDS = 4


@cache
def operations() -> tuple[Operation, ...]:
    """Return every route with its operation."""
    rows = [(PREFIX, route) for route in ROUTES] + [("", route) for route in AT_ROOT]
    paths = document()["paths"]
    return tuple((route, prefix + route.path, paths[prefix + route.path][route.method.lower()]) for prefix, route in rows)


def operations_of(topic: Topic) -> list[Operation]:
    """Return the operations of a page."""
    return [row for row in operations() if topic_of(row[0]) is topic]


def topic_of(route: Route) -> Topic:
    """Return the page of a route."""
    topics = [topic for topic in TOPICS if route.tag in topic.tags]
    return next((topic for topic in topics if topic.has_fences == has_fence(route)), topics[0])


def has_fence(route: Route) -> bool:
    """True if the body has a fence."""
    return route.body_model is not None and "fence" in route.body_model.model_fields


def heading(route: Route) -> str:
    """Return the heading of a route."""
    return f"{route.method} {route.path}"


def body_name(operation: Schema) -> str | None:
    """Return the name of the schema of the body; None if the operation takes no body, or an empty one."""
    body = operation.get("requestBody")
    name = next(references(body), None) if body else None
    return None if name == "EmptyBody" else name


def response_names(operation: Schema) -> list[str]:
    """Return the names of the schemas of the answers of a success."""
    answers = [answer for status, answer in operation["responses"].items() if status < "300"]
    return list(dict.fromkeys(name for answer in answers for name in references(answer)))


@cache
def places() -> dict[str, str]:
    """Return where each object is described: the page and the anchor, such as `pools.md#pool`."""
    found: dict[str, str] = {}
    for topic in TOPICS:
        for route, _, operation in operations_of(topic):
            if name := body_name(operation):
                found.setdefault(name, f"{topic.name}.md#{anchor_of(heading(route))}")
    for topic in TOPICS:
        for _, _, operation in operations_of(topic):
            for name in [*([body] if (body := body_name(operation)) else []), *response_names(operation)]:
                for part in _reachable(name):
                    found.setdefault(part, f"{topic.name}.md#{anchor_of(title_of(part))}")
    return found


def _reachable(name: str) -> list[str]:
    """Return the objects that need a description of their own: this one, and those inside of it."""
    seen: dict[str, None] = {}
    ahead = [name]
    while ahead:
        part = ahead.pop(0)
        if part in seen or part in ELSEWHERE or "enum" in schema_of(part):
            continue
        seen[part] = None
        ahead += references(schema_of(part))
    return [part for part in seen if list_row(part) is None]


def list_row(name: str) -> str | None:
    """Return the schema of the rows, if the object is a page of a list and nothing more."""
    schema = schema_of(name)
    if not name.endswith("ListResponse") or set(schema["properties"]) != {"items", "next_cursor"}:
        return None
    return str(schema["properties"]["items"]["items"]["$ref"].removeprefix(REFERENCE))


@dataclass(frozen=True)
class LinkFrom:
    """The function that links from a page to the description of an object."""

    topic: Topic

    def __call__(self, name: str) -> str:
        """Return the text for an object: a link, or its words if it is a short enumeration."""
        if name in ELSEWHERE:
            return ELSEWHERE[name]
        schema = schema_of(name)
        if "enum" in schema and len(schema["enum"]) <= MANY_WORDS:
            return ", ".join(f"`{word}`" for word in schema["enum"])
        if row := list_row(name):
            return f"[page](../http.md#pages) of {self(row)}"
        place = places()[name].removeprefix(f"{self.topic.name}.md")
        return f"[{title_of(name).lower()}]({place})"


def base_of(name: str) -> str | None:
    """Return the largest other object whose fields this one has, too; None if there is none."""
    own = schema_of(name)["properties"]
    bases = [
        other
        for other in (*places(), "TimelineEntryResponse")
        if other != name and (fields := schema_of(other).get("properties", {})) and FEWEST_BASE_FIELDS <= len(fields) < len(own)
        if all(own.get(field) == schema for field, schema in fields.items())
    ]
    return max(bases, key=lambda base: len(schema_of(base)["properties"]), default=None)
