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
from app.dashboard.page_context import Look
from app.domain.models import Group, Policy, Pool, PoolAccount, Request
from app.domain.names import component_id
from app.service.queries import PoolRequest

POOLS = 40
"""Pools of one page."""
ROWS = 50
"""Requests of one page: of those that wait, and of those that run."""
NODES = 100
"""Groups and policies of one page."""
EVENTS = 100
REACH = 1000
"""How far back the newest events of somebody are looked for, in events of all."""


def pools(look: Look) -> Response:
    """All pools, by name."""
    after = look.asked.args.get("after", "")
    names, follows, count = page_of(look, after)
    shown = [(pool, usage_bars.of_pool(pool)) for pool in look.services.pools.list_existing(look.workspace, names)]
    return look.page("pools.html", pools=shown, count=count, follows=follows, after=after)


def page_of(look: Look, after: str) -> tuple[list[str], str | None, int]:
    """The pools of a page, after which the next begins, and how many there are in all."""
    names = look.services.pools.list_names(look.workspace)
    page = [name for name in names if name > after]
    return page[:POOLS], page[POOLS - 1] if len(page) > POOLS else None, len(names)


@dataclass(frozen=True, slots=True)
class Node:
    """A group or a policy in the tree of a pool."""

    pool: Pool
    account: PoolAccount
    kind: str
    depth: int

    @property
    def bars(self) -> list[usage_bars.Bar]:
        """Of each key that it uses, reserves or limits."""
        return usage_bars.of_account(self.pool, self.account)


def pool(look: Look, pool: str) -> Response:
    """One pool: what is whose, who waits, who runs."""
    view, first = look.services.pools.get(look.workspace, pool), _first_node(look)
    queued, queue_follows = _rows(look, pool, "queued", "queue")
    active, active_follows = _rows(look, pool, "active", "running")
    waiting = [row for row in queued if look.visitor.sees(_component(row.request))]
    running = [row.request for row in active if look.visitor.sees(_component(row.request))]
    return look.page(
        "pool.html",
        pool=view,
        bars=usage_bars.of_pool(view),
        tree=list(islice(_tree(view), first, first + NODES)),
        tree_follows=first + NODES if first + NODES < len(view.groups) + len(view.policies) else None,
        waiting=waiting,
        running=running,
        unseen=len(queued) - len(waiting),
        reasons=look.services.dashboard_queries.list_reasons(
            look.workspace, pool, [row.request.id for row in waiting], with_ids=not look.visitor.token.is_limited
        ),
        estimates=look.services.estimates.list_estimates(look.workspace, pool) if waiting else {},
        queue_follows=queue_follows,
        active_follows=active_follows,
        at=look.asked.args,
        past=usage_history.of_pool(look, view),
        done=_done(look),
    )


def history(look: Look, pool: str) -> Response:
    """What the plot of a pool draws."""
    view = look.services.pools.get(look.workspace, pool)
    return usage_history.drawn(look, view, look.asked.args.get("key"))


def request(look: Look, request: str) -> Response:
    """One request: why it is where it is, and all that happened to it."""
    asked = look.services.requests.get(look.workspace, request)
    require_visible(look.visitor.token, asked)
    told = look.services.explain.explain(look.workspace, request)
    return look.page(
        "request.html",
        request=told.request,
        component=_component(told.request),
        told=ExplanationResponse.of(told, look.visitor.token),
        views={view.status.pool: view for view in told.pools},
        story=asked.timeline,
        done=_done(look),
    )


def events(look: Look) -> Response:
    """What happened last, the newest first."""
    found = look.services.queries.list_latest_events(look.workspace, REACH if look.visitor.token.is_limited else EVENTS)
    seen = [event for event in found if look.visitor.sees(event.component)]
    return look.page("events.html", events=seen[:EVENTS], searched=len(found))


DONE: Mapping[str, str] = {
    "cancelled": "The request has left the queue.",
    "dropped": "The request has been ended.",
    "resized": "The pool has been changed.",
    "policy": "The policy has been changed.",
}


def _done(look: Look) -> str | None:
    return DONE.get(look.asked.args.get("done", ""))


def _rows(look: Look, pool: str, view: str, cursor: str) -> tuple[list[PoolRequest], str | None]:
    asked = look.asked.args.get(cursor)
    try:
        if asked and not asked.startswith(f"{view[0]}:"):
            raise ValueError("it leads into the other table")
        return look.services.queries.list_pool_requests(look.workspace, pool, view, asked, ROWS)
    except ValueError:
        raise MalformedInput([(cursor, "is not one that was answered")], "the query") from None


def _first_node(look: Look) -> int:
    asked = look.asked.args.get("tree", "0")
    if not (asked.isascii() and asked.isdecimal() and len(asked) <= 9):
        raise MalformedInput([("tree", "is not one that was answered")], "the query")
    return int(asked)


def _component(request: Request) -> str:
    return component_id(request.component_type, request.component)


def _tree(pool: Pool) -> Iterator[Node]:
    """Depth first: groups by name, then policies, the highest priority first."""
    groups, policies = defaultdict[str | None, list[Group]](list), defaultdict[str | None, list[Policy]](list)
    for name in sorted(pool.groups):
        groups[pool.groups[name].parent].append(pool.groups[name])
    for policy in sorted(pool.policies.values(), key=lambda one: (-one.priority, one.name)):
        policies[policy.parent].append(policy)

    def below(parent: str | None, depth: int) -> Iterator[Node]:
        for group in groups[parent]:
            yield Node(pool, group, "group", depth)
            yield from below(group.name, depth + 1)
        yield from (Node(pool, policy, "policy", depth) for policy in policies[parent])

    return below(None, 0)
