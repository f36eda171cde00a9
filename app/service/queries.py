"""Read-only queries: requests by filter, requests of a pool in queue order, policies of a component, events, metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from app.domain.metrics import PoolMetrics, WorkspaceMetrics
from app.domain.models import Event, OpenRequests, Policy, Pool, Request
from app.domain.queue_score import BORROWING_STEP, MAX_AMOUNT
from app.domain.request_filter import RequestCounts, RequestFilter
from app.domain.states import RequestState
from app.domain.workspaces import Workspace
from app.service.validation import checked_component, checked_count, checked_name, checked_number
from app.store.ledger import Ledger
from app.store.metrics import MetricsStore
from app.store.queries import QueryStore

MAX_CALLS = 10
"""The most calls for one page of a queue."""


class PoolRequest(NamedTuple):
    """A request of a pool, and its position in the queue if it waits."""

    request: Request
    position: int | None


class RequestQueries:
    """Pages of requests, policies and events."""

    def __init__(self, ledger: Ledger, query_store: QueryStore) -> None:
        self._ledger, self._query_store = ledger, query_store

    def list_requests(
        self,
        workspace: str,
        filter_: RequestFilter | None = None,
        before: int | None = None,
        count: int = 100,
        *,
        with_positions: bool = False,
    ) -> tuple[list[Request], int | None]:
        """Return a page of requests, the newest first, and the start of the next page (None: no further page).

        A page may be short. With positions, queued requests have their queue positions; on a long page only the first of them.
        """
        before = None if before is None else checked_number("before", before)
        requests, last = self._query_store.list_requests(
            checked_name(workspace), filter_ or RequestFilter(), before, checked_count(count)
        )
        if with_positions:
            ids = [request.id for request in requests if request.status is RequestState.QUEUED]
            positions = self._query_store.read_queue_positions(workspace, ids)
            requests = [request._replace(position=positions.get(request.id, {})) for request in requests]
        return requests, last

    def count_requests(self, workspace: str, filter_: RequestFilter | None = None) -> RequestCounts:
        """Return the number of requests in each state: exact without conditions, else of the newest requests only."""
        if filter_ is None or not filter_.has_conditions:
            return self._query_store.count_requests(checked_name(workspace))
        return self._query_store.count_matching_requests(checked_name(workspace), filter_)

    def list_pool_requests(
        self, workspace: str, pool: str, view: str = "all", cursor: str | None = None, count: int = 100
    ) -> tuple[list[PoolRequest], str | None]:
        """Return a page of a pool's requests: those that hold units in order of grant, then those that wait in queue order."""
        checked_name(workspace), checked_name(pool), checked_count(count)
        part, after, position = _parse_cursor(cursor or ("q:" if view == "queued" else "a:"))
        if part == "a":
            allocations, fence = self._query_store.list_active(workspace, pool, after or 0, count)
            rows = [PoolRequest(request, None) for request in allocations]
            next_cursor = f"a:{fence}" if fence else "q:" if view == "all" else None
            return rows, next_cursor
        ids, last = self._ledger.fill_queue_page(workspace, pool, after, count, MAX_CALLS)
        positions = {request: position + number for number, request in enumerate(ids, start=1)}
        rows = [PoolRequest(request, positions[request.id]) for request in self._query_store.get_requests(workspace, ids)]
        return rows, None if last is None else f"q:{last}:{position + len(ids)}"

    def list_component_policies(self, workspace: str, component: str, kind: str = "orchestrator") -> list[tuple[Pool, Policy]]:
        """Return the policies of a component in all pools, the preferred pool first."""
        component_name = checked_component(kind, component)
        pools = (
            self._ledger.get_pool(workspace, pool)
            for pool in self._query_store.list_component_pools(checked_name(workspace), component_name)
        )
        return [(pool, pool.policies[component_name]) for pool in pools if component_name in pool.policies]

    def list_latest_events(self, workspace: str, count: int = 100, before: str | None = None) -> list[Event]:
        """Return the events of a workspace before an event, or the last of all, the newest first."""
        return self._query_store.read_latest_events(checked_name(workspace), checked_count(count), before)

    def read_open_requests(self, workspaces: Iterable[str]) -> OpenRequests:
        """Return the numbers of requests of these workspaces that hold units and that wait, with their deadlines."""
        total = OpenRequests()
        for workspace in workspaces:
            requests = self._query_store.read_deadlines(checked_name(workspace))
            total = OpenRequests(total.allocated.merge(requests.allocated), total.queued.merge(requests.queued))
        return total

    def get_workspace(self, workspace: str) -> Workspace:
        """Return the settings of a workspace, and the use of its limits."""
        return self._query_store.get_workspace(checked_name(workspace))


class MetricQueries:
    """Metrics of a workspace and of its pools. The only names in them are those of pools and policies."""

    def __init__(self, metrics_store: MetricsStore, ledger: Ledger) -> None:
        self._metrics_store, self._ledger = metrics_store, ledger

    def get_workspace_metrics(self, workspace: str) -> WorkspaceMetrics:
        """Return the counters of a workspace, and the number of requests in each state."""
        return self._metrics_store.get_workspace(checked_name(workspace))

    def list_pool_metrics(self, workspace: str) -> Iterator[PoolMetrics]:
        """Yield the metrics of each pool, by name. A pool deleted meanwhile is left out."""
        for name in self._ledger.list_pools(checked_name(workspace)):
            if pool := self._metrics_store.get_pool(workspace, name):
                yield pool


def _parse_cursor(cursor: str) -> tuple[str, int | None, int]:
    """Return the part of a pool's list (`a` or `q`), the row after which the page begins, and the queue position of that
    row."""
    match = re.fullmatch(r"(?:(a):([0-9]{1,16})?|(q):(?:(-?[0-9]{1,17}):([0-9]{1,16}))?)", cursor)
    if not match:
        raise ValueError("the cursor is not one of an answer")
    part, after = match[1] or match[3], match[2] or match[4]
    number = int(after) if after else None
    if number is not None and abs(number) > (BORROWING_STEP if part == "q" else MAX_AMOUNT):
        raise ValueError("the cursor is not one of an answer")
    return part, number, int(match[5] or 0)
