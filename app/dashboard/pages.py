"""The pages that are looked at: pools, one pool, one request, what happens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from flask import Response

from app.api.errors import MalformedInput
from app.api.permissions import require_visible
from app.api.schemas.explain import ExplanationResponse
from app.dashboard import usage_bars, usage_history
from app.dashboard.page_context import PageContext
from app.domain.models import Group, Policy, Pool, PoolAccount, Request
from app.domain.names import component_id
from app.service.queries import PoolRequest

PAGE_POOLS = 40
"""Pools of one page."""
PAGE_REQUESTS = 50
"""Requests of one page: of those that wait, and of those that run."""
TREE_ROWS = 100
"""Groups and policies of one page."""
PAGE_EVENTS = 100
LIMITED_EVENTS = 1000
"""How far back the newest events of somebody are looked for, in events of all."""


def show_pools(context: PageContext) -> Response:
    """All pools, by name."""
    after = context.http_request.args.get("after", "")
    names, follows, count = pool_names_page(context, after)
    shown = [(pool, usage_bars.pool_bars(pool)) for pool in context.services.pools.list_existing(context.workspace, names)]
    return context.render_page("pools.html", pools=shown, count=count, follows=follows, after=after)


def pool_names_page(context: PageContext, after: str) -> tuple[list[str], str | None, int]:
    """The pools of a page, after which the next begins, and how many there are in all."""
    names = context.services.pools.list_names(context.workspace)
    page = [name for name in names if name > after]
    return page[:PAGE_POOLS], page[PAGE_POOLS - 1] if len(page) > PAGE_POOLS else None, len(names)


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A group or a policy in the tree of a pool."""

    pool: Pool
    account: PoolAccount
    kind: str
    depth: int

    @property
    def bars(self) -> list[usage_bars.UsageBar]:
        """Of each key that it uses, reserves or limits."""
        return usage_bars.account_bars(self.pool, self.account)


def show_pool(context: PageContext, pool: str) -> Response:
    """One pool: what is whose, who waits, who runs."""
    view, first = context.services.pools.get(context.workspace, pool), _first_tree_row(context)
    queued, queue_follows = _request_rows(context, pool, "queued", "queue")
    active, active_follows = _request_rows(context, pool, "active", "running")
    waiting = [row for row in queued if context.user.can_see(_component(row.request))]
    running = [row.request for row in active if context.user.can_see(_component(row.request))]
    return context.render_page(
        "pool.html",
        pool=view,
        bars=usage_bars.pool_bars(view),
        tree=list(islice(_tree_rows(view), first, first + TREE_ROWS)),
        tree_follows=first + TREE_ROWS if first + TREE_ROWS < len(view.groups) + len(view.policies) else None,
        waiting=waiting,
        running=running,
        unseen=len(queued) - len(waiting),
        reasons=context.services.dashboard_queries.list_reasons(
            context.workspace, pool, [row.request.id for row in waiting], with_ids=not context.user.token.is_limited
        ),
        estimates=context.services.estimates.list_estimates(context.workspace, pool) if waiting else {},
        queue_follows=queue_follows,
        active_follows=active_follows,
        at=context.http_request.args,
        past=usage_history.history_view(context, view),
        done=_action_message(context),
    )


def plot_data(context: PageContext, pool: str) -> Response:
    """What the plot of a pool draws."""
    view = context.services.pools.get(context.workspace, pool)
    return usage_history.plot_response(context, view, context.http_request.args.get("key"))


def show_request(context: PageContext, request: str) -> Response:
    """One request: why it is where it is, and all that happened to it."""
    asked = context.services.requests.get(context.workspace, request)
    require_visible(context.user.token, asked)
    told = context.services.explain.explain(context.workspace, request)
    return context.render_page(
        "request.html",
        request=told.request,
        component=_component(told.request),
        told=ExplanationResponse.of(told, context.user.token),
        views={view.status.pool: view for view in told.pools},
        story=asked.timeline,
        done=_action_message(context),
    )


def show_events(context: PageContext) -> Response:
    """What happened last, the newest first."""
    found = context.services.queries.list_latest_events(context.workspace, LIMITED_EVENTS if context.user.token.is_limited else PAGE_EVENTS)
    seen = [event for event in found if context.user.can_see(event.component)]
    return context.render_page("events.html", events=seen[:PAGE_EVENTS], searched=len(found))


ACTION_MESSAGES: Mapping[str, str] = {
    "cancelled": "The request has left the queue.",
    "dropped": "The request has been ended.",
    "resized": "The pool has been changed.",
    "policy": "The policy has been changed.",
}


def _action_message(context: PageContext) -> str | None:
    return ACTION_MESSAGES.get(context.http_request.args.get("done", ""))


def _request_rows(context: PageContext, pool: str, view: str, cursor: str) -> tuple[list[PoolRequest], str | None]:
    asked = context.http_request.args.get(cursor)
    try:
        if asked and not asked.startswith(f"{view[0]}:"):
            raise ValueError("it leads into the other table")
        return context.services.queries.list_pool_requests(context.workspace, pool, view, asked, PAGE_REQUESTS)
    except ValueError:
        raise MalformedInput([(cursor, "is not one that was answered")], "the query") from None


def _first_tree_row(context: PageContext) -> int:
    asked = context.http_request.args.get("tree", "0")
    if not (asked.isascii() and asked.isdecimal() and len(asked) <= 9):
        raise MalformedInput([("tree", "is not one that was answered")], "the query")
    return int(asked)


def _component(request: Request) -> str:
    return component_id(request.component_type, request.component)


def _tree_rows(pool: Pool) -> Iterator[TreeRow]:
    """Depth first: groups by name, then policies, the highest priority first."""
    groups, policies = defaultdict[str | None, list[Group]](list), defaultdict[str | None, list[Policy]](list)
    for name in sorted(pool.groups):
        groups[pool.groups[name].parent].append(pool.groups[name])
    for policy in sorted(pool.policies.values(), key=lambda one: (-one.priority, one.name)):
        policies[policy.parent].append(policy)

    def below(parent: str | None, depth: int) -> Iterator[TreeRow]:
        for group in groups[parent]:
            yield TreeRow(pool, group, "group", depth)
            yield from below(group.name, depth + 1)
        yield from (TreeRow(pool, policy, "policy", depth) for policy in policies[parent])

    return below(None, 0)
