"""The pages of all pools, of one pool and of one request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from flask import Response

from app.api.component_access import require_visible
from app.api.errors import MalformedInput
from app.api.schemas.explain import ExplanationResponse
from app.dashboard import usage_bars, usage_history
from app.dashboard.mentioned_requests import ids_in_texts, link_ids, read_mentioned
from app.dashboard.page_context import PageContext
from app.dashboard.preemption_text import preemption_sentence
from app.domain.models import Group, Policy, Pool, PoolAccount, Request
from app.domain.names import component_id
from app.service.queries import PoolRequest

PAGE_POOLS = 40
"""The most pools of one page."""
PAGE_REQUESTS = 50
"""The most queued requests of one page, and the most running ones."""
TREE_ROWS = 100
"""The most groups and policies of one page."""


def show_pools(context: PageContext) -> Response:
    """Show all pools, by name."""
    after = context.http_request.args.get("after", "")
    names, next_after, count = pool_names_page(context, after)
    rows = [(pool, usage_bars.pool_bars(pool)) for pool in context.services.pools.list_existing(context.workspace, names)]
    return context.render_page("pools.html", pools=rows, count=count, next_after=next_after, after=after)


def pool_names_page(context: PageContext, after: str) -> tuple[list[str], str | None, int]:
    """Return the pools of a page, the last of them if more follow, and the number of all pools."""
    names = context.services.pools.list_names(context.workspace)
    page = [name for name in names if name > after]
    return page[:PAGE_POOLS], page[PAGE_POOLS - 1] if len(page) > PAGE_POOLS else None, len(names)


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A row of the table of policies and groups: an account and its depth in the tree."""

    pool: Pool
    account: PoolAccount
    kind: str
    depth: int

    @property
    def bars(self) -> list[usage_bars.UsageBar]:
        """Return a bar for each key that the account uses, reserves or limits; for a template, the use of its instances."""
        return usage_bars.account_bars(self.pool, self._template_total or self.account)

    @property
    def is_template(self) -> bool:
        """True if the account is a policy template."""
        return isinstance(self.account, Policy) and self.account.policies is not None

    @property
    def queued(self) -> int:
        """Return the number of requests that wait; for a template, of all its instances."""
        account = self._template_total or self.account
        return account.queued if isinstance(account, Policy) else 0

    @property
    def _template_total(self) -> Policy | None:
        """Return the instances of a template as one account. It has no limit, as that of the template is for each instance."""
        if not isinstance(self.account, Policy) or self.account.policies is None:
            return None
        use = self.pool.template_use(self.account)
        reserved = {key: amount * self.account.policies for key, amount in self.account.reserved.items()}
        return replace(self.account, used=use.used, used_fixed=use.used_fixed, queued=use.queued, reserved=reserved, limit={})


def show_pool(context: PageContext, pool: str) -> Response:
    """Show one pool: its policies and groups, its queue, its allocations and its usage history."""
    view, first = context.services.pools.get(context.workspace, pool), _first_tree_row(context)
    queued, queue_cursor = _request_rows(context, pool, "queued", "queue")
    active, active_cursor = _request_rows(context, pool, "active", "running")
    waiting = [row for row in queued if context.user.can_see(_component(row.request))]
    running = [row.request for row in active if context.user.can_see(_component(row.request))]
    reasons = context.services.dashboard_queries.list_reasons(
        context.workspace, pool, [row.request.id for row in waiting], with_ids=not context.user.token.is_limited
    )
    mentioned = [*(request.preempted_by for request in running), *ids_in_texts(why.sentence for why in reasons.values())]
    return context.render_page(
        "pool.html",
        pool=view,
        bars=usage_bars.pool_bars(view),
        tree=list(islice(_tree_rows(view), first, first + TREE_ROWS)),
        tree_cursor=first + TREE_ROWS if first + TREE_ROWS < len(view.groups) + len(view.policies) else None,
        waiting=waiting,
        running=running,
        hidden_count=len(queued) - len(waiting),
        reasons=reasons,
        mentioned=read_mentioned(context, mentioned),
        link_ids=link_ids,
        estimates=context.services.estimates.list_estimates(context.workspace, pool) if waiting else {},
        queue_cursor=queue_cursor,
        active_cursor=active_cursor,
        args=context.http_request.args,
        history=usage_history.history_view(context, view),
        message=_action_message(context),
    )


def plot_data(context: PageContext, pool: str) -> Response:
    """Return the data of the usage plot of a pool."""
    view = context.services.pools.get(context.workspace, pool)
    return usage_history.plot_response(context, view)


def show_request(context: PageContext, request: str) -> Response:
    """Show one request: its state, the explanation of its wait and its timeline."""
    target = context.services.requests.get(context.workspace, request)
    require_visible(context.user.token, target)
    explanation = context.services.explain.explain(context.workspace, request)
    response = ExplanationResponse.of(explanation, context.user.token)
    return context.render_page(
        "request.html",
        request=explanation.request,
        component=_component(explanation.request),
        explanation=response,
        mentioned=read_mentioned(context, _mentioned_ids(target, response)),
        link_ids=link_ids,
        preemption_sentence=preemption_sentence,
        views={view.status.pool: view for view in explanation.pools},
        timeline=target.timeline,
        message=_action_message(context),
    )


def _mentioned_ids(request: Request, explanation: ExplanationResponse) -> Iterator[str | None]:
    """Yield the ids of other requests on the page of a request, the most important first."""
    yield from ids_in_texts([explanation.sentence, request.reason.message if request.reason else None])
    for pool in explanation.pools:
        yield from ids_in_texts([pool.would_start_if])
        yield from pool.preemption.leaving
        yield from (candidate.request for candidate in pool.preemption.candidates)
    for entry in reversed(request.timeline):
        yield entry.by
        yield from (victim for victim, _ in entry.victims)


ACTION_MESSAGES: Mapping[str, str] = {
    "cancelled": "The request was cancelled and has left the queue.",
    "dropped": "The request was dropped.",
    "resized": "The pool was changed.",
    "policy": "The policy was changed.",
}


def _action_message(context: PageContext) -> str | None:
    return ACTION_MESSAGES.get(context.http_request.args.get("done", ""))


def _request_rows(context: PageContext, pool: str, view: str, parameter: str) -> tuple[list[PoolRequest], str | None]:
    cursor = context.http_request.args.get(parameter)
    try:
        if cursor and not cursor.startswith(f"{view[0]}:"):
            raise ValueError("it is a cursor of the other table")
        return context.services.queries.list_pool_requests(context.workspace, pool, view, cursor, PAGE_REQUESTS)
    except ValueError:
        raise MalformedInput([(parameter, "is not one that was answered")], "the query") from None


def _first_tree_row(context: PageContext) -> int:
    cursor = context.http_request.args.get("tree", "0")
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 9):
        raise MalformedInput([("tree", "is not one that was answered")], "the query")
    return int(cursor)


def _component(request: Request) -> str:
    return component_id(request.component_type, request.component)


def _tree_rows(pool: Pool) -> Iterator[TreeRow]:
    """Yield the accounts depth first: groups by name, then policies by priority, a template before its instances."""
    groups, policies = defaultdict[str | None, list[Group]](list), defaultdict[str | None, list[Policy]](list)
    for name in sorted(pool.groups):
        groups[pool.groups[name].parent].append(pool.groups[name])
    instances = defaultdict[str | None, list[Policy]](list)
    for policy in sorted(pool.policies.values(), key=lambda policy: (-policy.priority, policy.name)):
        (instances[policy.template] if policy.template else policies[policy.parent]).append(policy)

    def below(parent: str | None, depth: int) -> Iterator[TreeRow]:
        for group in groups[parent]:
            yield TreeRow(pool, group, "group", depth)
            yield from below(group.name, depth + 1)
        for policy in policies[parent]:
            yield TreeRow(pool, policy, "policy", depth)
            yield from (TreeRow(pool, each, "policy", depth + 1) for each in instances[policy.name])

    return below(None, 0)
