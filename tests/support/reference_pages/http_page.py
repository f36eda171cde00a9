"""The first page of the HTTP reference: what holds for every route, and the table of all routes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from app.api.body_limits import LARGE_BODY, SMALL_BODY, BodyLimit
from app.api.routes import AT_ROOT, PREFIX, ROUTES
from app.api.routing import Route
from app.api.schemas.inputs import LONGEST_POLL_S
from app.domain.names import (
    IDEMPOTENCY_PATTERN,
    KEY_PATTERN,
    LABEL_PATTERN,
    NAME_PATTERN,
    PATTERN_TEXTS,
    POLICY_PATTERN,
    TASK_PATTERN,
)
from app.domain.tokens import PERMISSION_ACTIONS, Role, roles_with
from app.domain.workspace_limits import REJECTED_KEPT_S, REQUESTER_LIMITS, WORKSPACE_LIMITS
from app.service.validation import MAX_PAGE_ROWS
from tests.support.doc_pages import anchor_of
from tests.support.reference_pages.http_topic_page import permission_of, summary
from tests.support.reference_pages.http_topics import TOPICS, has_fence, heading, operations_of, topic_of
from tests.support.reference_pages.markdown import block, code, codes, page, table

EXAMPLE = f"""\
curl http://127.0.0.1:8080{PREFIX}/requests \\
  -H 'Authorization: Bearer TOKEN' -H 'Poolkeeper-Workspace: default' \\
  -H 'Content-Type: application/json' -H 'Idempotency-Key: nightly-2026-01-31' \\
  -d '{{"component": "team-ml", "resources": {{"gpu": 2}}}}'"""


def http_page() -> str:
    """Return the page."""
    return page(
        "HTTP API",
        f"The HTTP API takes and answers JSON below `{PREFIX}`. This page describes what all routes have in common; each "
        "route is described on the page of its topic.",
        "app/api/routes.py, app/domain/tokens.py and app/api/body_limits.py",
        block("sh", EXAMPLE),
        table(["page", "for"], ([f"[{topic.title}](http/{topic.name}.md)", topic.purpose] for topic in TOPICS)),
        f"The OpenAPI document is `GET {PREFIX}/openapi.json`; `/docs` of a running service shows it. The JSON schema of the "
        f"pools file is `GET {PREFIX}/pools.schema.json`.",
        *_authentication(),
        *_calls(),
        *_waits(),
        *_limits(),
        *_errors(),
        "## Routes",
        f"{codes(heading(route) for route in AT_ROOT)} are at the root, all others below `{PREFIX}`. "
        "A permission names the [roles](#roles-and-permissions) that may call.",
        table(
            ["route", "permission", "for"],
            (_route(route) for topic in TOPICS for route, _, _ in operations_of(topic)),
        ),
    )


def _route(route: Route) -> list[str]:
    place = f"http/{topic_of(route).name}.md#{anchor_of(heading(route))}"
    return [f"[`{heading(route)}`]({place})", permission_of(route), summary(route)]


def _authentication() -> Iterable[str]:
    yield "## Authentication"
    yield (
        "Send the token in the header `Authorization: Bearer TOKEN`. `poolkeeperd token create` makes tokens. While no token "
        "exists and `require_token` is not set, calls from this machine need none and may do everything; calls from other "
        "machines, through a proxy or from a page of another origin are refused."
    )
    yield "## Workspaces"
    yield (
        "The header `Poolkeeper-Workspace` names the workspace. Without it the call is for the only workspace of the token, "
        "else for `default`. A token is valid in the workspaces that it lists, or in all (`*`)."
    )
    yield "## Roles and permissions"
    yield (
        "A token has one role. A token of the role `requester` lists components, and sees and acts for those alone. Any "
        "token may be given the permission `sensitive`."
    )
    yield table(
        ["permission", "allows to", *(f"`{role}`" for role in Role)],
        (
            [code(permission), action, *("yes" if role in roles_with(permission) else "" for role in Role)]
            for permission, action in PERMISSION_ACTIONS.items()
        ),
    )


def _calls() -> Iterable[str]:
    with_key = [heading(route) for route in ROUTES if "Idempotency-Key" in route.request_headers]
    with_fence = [heading(route) for route in ROUTES if has_fence(route)]
    yield "## Bodies"
    yield "Send `Content-Type: application/json`. Unknown fields and query parameters are refused, so a typing error is found."
    yield "## Names"
    yield table(
        ["name of", "form"],
        (
            [subject, f"{PATTERN_TEXTS[pattern].removeprefix('must be ')}"]
            for subject, pattern in (
                ("workspace, pool, group, component, type", NAME_PATTERN),
                ("component of a policy", POLICY_PATTERN),
                ("resource key", KEY_PATTERN),
                ("label", LABEL_PATTERN),
                ("task", TASK_PATTERN),
                ("idempotency key", IDEMPOTENCY_PATTERN),
            )
        ),
    )
    yield "## Idempotency"
    yield (
        f"{codes(with_key)} take the header `Idempotency-Key`. If the call is repeated with the same key and body, it is done "
        "once, and answered with the object as it is now. The same key with another body is refused with 409 "
        "`idempotency_conflict`. Keys are remembered for `idempotency_ttl_s`. `POST /pools` is an exception: it remembers key "
        "and body together, for ten minutes, and the same key with another body is another call. All other calls need no key: "
        "to repeat them changes nothing more."
    )
    yield "## Fences"
    yield (
        "Each grant has a fence, a number that grows with every grant of the workspace. Send it with "
        f"{codes(with_fence)}. If the fence is not that of the present allocation, the call is refused with 409 `stale_fence` "
        "and the directive `kill`: stop the work, as the units may belong to another request."
    )
    yield "## Pages"
    yield (
        f"A list takes `limit` (100 by default, at most {MAX_PAGE_ROWS:,}) and `cursor`, and answers `items` and "
        "`next_cursor`. Send `next_cursor` as `cursor` to read on; null means that this was the last page. A page may have "
        "fewer rows than `limit`, or none, and not be the last."
    )


def _waits() -> Iterable[str]:
    yield "## Long polls"
    yield (
        f"`POST /requests` and `GET /requests/{{request}}` take `wait_s`, at most {LONGEST_POLL_S}. The answer comes when the "
        "request changes, or after that time with the present state. Call again in a loop. A poll also keeps a waiter with a "
        "queue TTL in the queue. If all wait slots are taken, the answer comes at once, with the header `Retry-After`."
    )
    yield "## Event stream"
    yield (
        "`GET /events` answers server-sent events. A client that connects again sends the id of its last event in "
        "`Last-Event-ID`, and misses none that is kept. In a proxy before the service, turn off buffering for this route, and "
        f"set the read timeout of all routes above {LONGEST_POLL_S} seconds."
    )


def _limits() -> Iterable[str]:
    yield "## Limits"
    yield "A larger body is refused with 413. All members of objects and lists in the body count together."
    yield table(["body of", "bytes", "members"], _body_limits())
    yield (
        "A workspace has limits, settings of [`PATCH /workspace`](http/workspace.md#patch-workspace). Beyond a limit, a new "
        "request, pool or policy is refused with 429; an accepted request never is."
    )
    yield table(
        ["limit", "default", "counts", "refusal"],
        ([code(row.name), f"{row.default:,}", row.counted, code(row.code) or "none"] for row in WORKSPACE_LIMITS.values()),
    )
    yield (
        "Beyond `max_ended` the oldest ended requests are deleted; a rejected request is kept for "
        f"{REJECTED_KEPT_S // 60} minutes at most. A token of the role `requester` may have {REQUESTER_LIMITS.max_waiting:,} "
        f"requests waiting, of {REQUESTER_LIMITS.max_shapes:,} different shapes, in each workspace; `poolkeeperd token create` "
        "sets other numbers. The rate of a token is bounded by its `--rate`, or by the setting `rate_per_s`."
    )


def _body_limits() -> Iterable[list[str]]:
    routes = defaultdict[BodyLimit, list[str]](list)
    for route in ROUTES:
        if route.body_model:
            routes[route.body_limit].append(heading(route))
    for limit, headings in sorted(routes.items(), key=lambda row: row[0].bytes):
        size = "`max_body_bytes`, 4 MiB by default" if limit == LARGE_BODY else f"{limit.bytes // 1024:,} KiB"
        yield ["all other routes" if limit == SMALL_BODY else codes(headings), size, f"{limit.members:,}"]


def _errors() -> Iterable[str]:
    yield "## Errors"
    yield (
        "Every refusal is a problem document with a stable `code`: see [errors](errors.md). Every answer has the header "
        "`X-Request-Id`, which the log has as well; a client may send its own. These refusals may come from any route:"
    )
    yield table(
        ["status", "if"],
        [
            ["400", "the path, a query parameter, a header or the body is malformed"],
            ["401", "the call needs a token, or the token is not valid"],
            ["403", "the token is not for this workspace, component or permission"],
            ["404", "the path names an object that does not exist"],
            ["413, 415", "the body is too large, or is not JSON"],
            ["429", "the token calls too often; repeat the call after `Retry-After` seconds"],
            ["503", "Redis cannot serve now; repeat the call after `Retry-After` seconds"],
        ],
    )
