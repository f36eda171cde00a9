"""The page of requests: a search, tabs of states with counts, and pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from flask import Response

from app.api.errors import MalformedInput
from app.api.pagination import parse_cursor
from app.dashboard.page_context import PageContext
from app.domain.request_filter import RequestCounts, RequestFilter
from app.domain.states import FINAL_STATES, HOLDING_STATES, RequestState

PAGE_ROWS = 50
LONGEST_SEARCH = 100
DEFAULT_TAB = "live"

TABS: Mapping[str, tuple[RequestState, ...]] = {
    "live": (RequestState.QUEUED, *sorted(HOLDING_STATES)),
    "queued": (RequestState.QUEUED,),
    "allocated": (RequestState.ALLOCATED,),
    "preempting": (RequestState.PREEMPTING,),
    "ended": tuple(sorted(FINAL_STATES)),
    "all": (),
}
"""Name of a tab → the states that it shows; empty: every state."""


@dataclass(frozen=True, slots=True)
class StateTab:
    """A tab of the page: its name, and the number of its requests."""

    name: str
    count: int
    is_exact: bool
    is_selected: bool

    @property
    def number(self) -> str:
        """Return the count as text: `12`, or `12+` if there may be more."""
        return f"{self.count:,}{'' if self.is_exact else '+'}"


def show_requests(context: PageContext) -> Response:
    """Show the requests of a tab that match a search, the newest first."""
    args = context.http_request.args
    tab, text = args.get("state", DEFAULT_TAB), args.get("search", "").strip()
    if tab not in TABS:
        raise MalformedInput([("state", f"is none of {', '.join(TABS)}")], "the query")
    if len(text) > LONGEST_SEARCH:
        raise MalformedInput([("search", f"has more than {LONGEST_SEARCH} characters")], "the query")
    conditions = RequestFilter(text=text or None, visible=context.user.token.visible_components)
    requests, before = context.services.queries.list_requests(
        context.workspace,
        replace(conditions, status=TABS[tab]),
        parse_cursor(args.get("before")),
        PAGE_ROWS,
        with_positions=True,
    )
    return context.render_page(
        "requests.html",
        tab=tab,
        tabs=_tabs(context.services.queries.count_requests(context.workspace, conditions), tab),
        search=text,
        requests=[request for request in requests if context.user.token.can_see(request.component_type, request.component)],
        before=before,
        is_first_page="before" not in args,
    )


def _tabs(counts: RequestCounts, selected: str) -> list[StateTab]:
    return [StateTab(name, getattr(counts, name), counts.is_exact, name == selected) for name in TABS]
