"""Lists: requests by what is known of them, those of a pool in queue order, policies of a component."""

from __future__ import annotations

import re
from typing import NamedTuple

from app.domain.models import Event, Policy, Pool, Request
from app.domain.names import component_id
from app.domain.queue_score import BAND, EXACT
from app.service.validation import checked_count, checked_name, checked_number
from app.store.ledger import Ledger
from app.store.queries import Lists, Wanted


class Row(NamedTuple):
    """One of a pool: the request, and its place in the queue if it waits."""

    request: Request
    place: int | None


class Listing:
    """What can be listed."""

    def __init__(self, ledger: Ledger, lists: Lists) -> None:
        self._ledger, self._lists = ledger, lists

    def requests(
        self, workspace: str, wanted: Wanted | None = None, before: int | None = None, count: int = 100
    ) -> tuple[list[Request], int | None]:
        """A page of requests, newest first, at times short, and where the next begins (None: that was all)."""
        before = None if before is None else checked_number("before", before)
        return self._lists.requests(checked_name(workspace), wanted or Wanted(), before, checked_count(count))

    def of_pool(
        self, workspace: str, pool: str, view: str = "all", cursor: str | None = None, count: int = 100
    ) -> tuple[list[Row], str | None]:
        """A page of a pool's requests: those that hold units in order of grant, then those that wait, in queue order."""
        checked_name(workspace), checked_name(pool), checked_count(count)
        part, after, place = _place(cursor or ("q:" if view == "queued" else "a:"))
        if part == "a":
            held, fence = self._lists.active(workspace, pool, after or 0, count)
            rows = [Row(request, None) for request in held]
            follows = f"a:{fence}" if fence else "q:" if view == "all" else None
            return rows, follows
        ids, last = self._ledger.queue(workspace, pool, after, count)
        places = {request: place + number for number, request in enumerate(ids, start=1)}
        rows = [Row(request, places[request.id]) for request in self._lists.fetch(workspace, ids)]
        return rows, None if last is None else f"q:{last}:{place + len(ids)}"

    def policies_of(self, workspace: str, component: str, kind: str = "orchestrator") -> list[tuple[Pool, Policy]]:
        """A component's policies in all pools, the most preferred first."""
        named = component_id(checked_name(kind), checked_name(component))
        pools = (self._ledger.view_pool(workspace, pool) for pool in self._lists.pools_of(checked_name(workspace), named))
        return [(pool, pool.policies[named]) for pool in pools if named in pool.policies]

    def newest(self, workspace: str, count: int = 100) -> list[Event]:
        """The workspace's last events, the newest first."""
        return self._lists.newest(checked_name(workspace), checked_count(count))

    def unmanaged(self, workspace: str) -> str:
        """What becomes of a component without any policy."""
        return self._lists.unmanaged(checked_name(workspace))


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
