"""Read-only queries: one typed method per reading Lua command; each call touches a bounded number of records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from app.domain.errors import NotFound
from app.domain.models import Deadlines, Event, OpenRequests, Request
from app.domain.queue_score import MAX_AMOUNT
from app.domain.request_filter import RequestCounts, RequestFilter, counts_of
from app.domain.workspaces import Workspace
from app.store import codec, workspace_codec
from app.store.connection import RedisClient
from app.store.scripts import Scripts

SCAN_SIZE = 1000
"""The most ids that one call of a search reads. It reads as many of their requests as its work budget allows."""
MAX_SCANS = 20
"""The most calls for one page. A filter with few matches therefore comes in several pages, some of them empty."""
MAX_COUNT_SCANS = 4
"""The most calls that count the matches of a filter. Together they read about 2,000 requests."""
MAX_POSITION_CALLS = 10
"""The most calls that read the queue positions of a page. Together they run about 5,000 commands."""
READ_SIZE = 100
"""The most requests that one call reads by their ids."""


class QueryStore:
    """The lists and other queries of the workspaces on one Redis."""

    def __init__(self, client: RedisClient) -> None:
        self._scripts = Scripts(client)

    def list_requests(
        self, workspace: str, request_filter: RequestFilter, before: int | None, count: int
    ) -> tuple[list[Request], int | None]:
        """Return a page of requests, newest first, and the number before which the next page begins (None: the last page)."""
        requests: list[Request] = []
        for _ in range(MAX_SCANS):
            missing = count - len(requests)
            start = MAX_AMOUNT if before is None else before
            reply = self._scripts.call(
                "list_requests",
                workspace,
                before=start,
                count=missing,
                scan=SCAN_SIZE if request_filter.has_conditions else missing,
                filter=codec.encode_filter(request_filter),
            )
            requests += _decode_requests(reply.fields["found"])
            before = int(reply.fields["last"]) if reply.fields["last"] else None
            if before is None or len(requests) == count:
                break
        return requests, before

    def get_requests(self, workspace: str, ids: Sequence[str]) -> list[Request]:
        """Return requests by id in this order, without queue positions. Ids of pruned requests are left out."""
        requests: list[Request] = []
        for first in range(0, len(ids), READ_SIZE):
            reply = self._scripts.call("get_requests", workspace, ids=json.dumps(ids[first : first + READ_SIZE]))
            requests += _decode_requests(reply.fields["requests"])
        return requests

    def count_requests(self, workspace: str) -> RequestCounts:
        """Return the exact numbers of all requests."""
        fields = self._scripts.call("count_requests", workspace).fields
        queued, holding, preempting, ended = (int(fields[name]) for name in ("queued", "holding", "preempting", "ended"))
        return RequestCounts(queued, holding - preempting, preempting, ended)

    def count_matching_requests(self, workspace: str, request_filter: RequestFilter) -> RequestCounts:
        """Return the numbers of the requests that match, among the newest."""
        count_by_status: Counter[str] = Counter()
        before = str(MAX_AMOUNT)
        for _ in range(MAX_COUNT_SCANS):
            reply = self._scripts.call(
                "count_matching_requests",
                workspace,
                before=before,
                scan=SCAN_SIZE,
                filter=codec.encode_filter(request_filter),
            )
            row = reply.fields["counts"]
            count_by_status.update({status: int(count) for status, count in zip(row[::2], row[1::2], strict=True)})
            before = reply.fields["last"]
            if not before:
                break
        return counts_of(count_by_status, is_exact=not before)

    def read_queue_positions(self, workspace: str, ids: Sequence[str]) -> dict[str, dict[str, int]]:
        """Return the positions (pool → position) of queued requests. The last ids may be left out: the calls are bounded."""
        position_by_id: dict[str, dict[str, int]] = {}
        for _ in range(MAX_POSITION_CALLS):
            rest = ids[len(position_by_id) :][:READ_SIZE]
            if not rest:
                break
            rows = self._scripts.call("read_queue_positions", workspace, ids=json.dumps(rest)).fields["positions"]
            for request_id, row in zip(rest, rows, strict=False):
                position_by_id[request_id] = {pool: int(position) for pool, position in codec.to_mapping(row).items()}
        return position_by_id

    def list_active(self, workspace: str, pool: str, after: int, count: int) -> tuple[list[Request], int | None]:
        """Return a page of a pool's allocations in order of grant, and the fence after which the next page begins (None: the
        last)."""
        reply = self._scripts.call("list_active", workspace, pool=pool, after=after, count=count)
        if reply.tag == "not_found":
            raise NotFound("pool", pool)
        return _decode_requests(reply.fields["found"]), int(reply.fields["last"]) if reply.fields["last"] else None

    def list_component_pools(self, workspace: str, component: str) -> list[str]:
        """Return the pools in which a component (`type/name`) has a policy, the most preferred first."""
        return list(self._scripts.call("list_component_pools", workspace, component=component).fields["pools"])

    def read_latest_events(self, workspace: str, count: int, before: str | None = None) -> list[Event]:
        """Return the latest events before the event `before`, newest first; without it the latest of all."""
        last = f"({before}" if before else "+"
        entries = self._scripts.call("read_latest_events", workspace, last=last, count=count).fields["entries"]
        return [codec.decode_event(entry, codec.to_mapping(fields)) for entry, fields in entries]

    def read_deadlines(self, workspace: str) -> OpenRequests:
        """Return the numbers of allocations and of queued requests, with their first and last deadline."""
        fields = self._scripts.call("read_deadlines", workspace).fields
        return OpenRequests(*(_decode_deadlines(fields[name]) for name in ("leases", "waiting")))

    def get_workspace(self, workspace: str) -> Workspace:
        """Return the settings of a workspace, and the use of its limits."""
        return workspace_codec.decode_workspace(self._scripts.call("get_workspace", workspace).fields)


def _decode_deadlines(row: Sequence[int | str]) -> Deadlines:
    count, endless, first_ms, last_ms = row
    return Deadlines(int(count), int(endless), int(first_ms) if first_ms else None, int(last_ms) if last_ms else None)


def _decode_requests(flats: Iterable[codec.FlatHash]) -> list[Request]:
    requests = []
    for flat in flats:
        fields = codec.to_mapping(flat)
        requests.append(codec.decode_request(fields, fields.get("lapses", "")))
    return requests
