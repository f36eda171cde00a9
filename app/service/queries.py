"""Lists: requests by what is known of them, those of a pool in queue order, policies of a component."""

from __future__ import annotations

import re
from typing import NamedTuple

from app.domain.models import Event, Policy, Pool, Request
from app.domain.names import component_id
from app.domain.queue_score import BAND, EXACT
from app.service.validation import checked_count, checked_name, checked_number
from app.store.ledger import Ledger
from app.store.queries import QueryStore, RequestFilter


class PoolRequest(NamedTuple):
    """One of a pool: the request, and its place in the queue if it waits."""

    request: Request
    place: int | None


class RequestQueries:
    """What can be listed."""

    def __init__(self, ledger: Ledger, lists: QueryStore) -> None:
        self._ledger, self._lists = ledger, lists

    def list_requests(
        self, workspace: str, wanted: RequestFilter | None = None, before: int | None = None, count: int = 100
    ) -> tuple[list[Request], int | None]:
        """A page of requests, newest first, at times short, and where the next begins (None: that was all)."""
        before = None if before is None else checked_number("before", before)
        return self._lists.list_requests(checked_name(workspace), wanted or RequestFilter(), before, checked_count(count))

    def list_pool_requests(
        self, workspace: str, pool: str, view: str = "all", cursor: str | None = None, count: int = 100
    ) -> tuple[list[PoolRequest], str | None]:
        """A page of a pool's requests: those that hold units in order of grant, then those that wait, in queue order."""
        checked_name(workspace), checked_name(pool), checked_count(count)
        part, after, place = _place(cursor or ("q:" if view == "queued" else "a:"))
        if part == "a":
            held, fence = self._lists.list_active(workspace, pool, after or 0, count)
            rows = [PoolRequest(request, None) for request in held]
            follows = f"a:{fence}" if fence else "q:" if view == "all" else None
            return rows, follows
        ids, last = self._ledger.list_queue(workspace, pool, after, count)
        places = {request: place + number for number, request in enumerate(ids, start=1)}
        rows = [PoolRequest(request, places[request.id]) for request in self._lists.get_requests(workspace, ids)]
        return rows, None if last is None else f"q:{last}:{place + len(ids)}"

    def list_component_policies(self, workspace: str, component: str, kind: str = "orchestrator") -> list[tuple[Pool, Policy]]:
        """A component's policies in all pools, the most preferred first."""
        named = component_id(checked_name(kind), checked_name(component))
        pools = (self._ledger.get_pool(workspace, pool) for pool in self._lists.list_component_pools(checked_name(workspace), named))
        return [(pool, pool.policies[named]) for pool in pools if named in pool.policies]

    def list_latest_events(self, workspace: str, count: int = 100) -> list[Event]:
        """The workspace's last events, the newest first."""
        return self._lists.list_latest_events(checked_name(workspace), checked_count(count))

    def get_unmanaged_mode(self, workspace: str) -> str:
        """What becomes of a component without any policy."""
        return self._lists.get_unmanaged_mode(checked_name(workspace))


def _place(cursor: str) -> tuple[str, int | None, int]:
    """Which part of a pool's list, after what, and how many of the queue came before."""
    told = re.fullmatch(r"(?:(a):([0-9]{1,16})?|(q):(?:(-?[0-9]{1,17}):([0-9]{1,16}))?)", cursor)
    if not told:
        raise ValueError("the cursor is not one that was answered")
    part, after = told[1] or told[3], told[2] or told[4]
    number = int(after) if after else None
    if number is not None and abs(number) > (BAND if part == "q" else EXACT):
        raise ValueError("the cursor is not one that was answered")
    return part, number, int(told[5] or 0)
