"""Lists and other looks that change nothing: one typed method per reading command, each bounded in what one call touches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.domain.errors import NotFound
from app.domain.models import Event, Request
from app.domain.queue_score import EXACT
from app.domain.states import RequestState
from app.store import codec
from app.store.scripts import RedisClient, ScriptReply, Scripts

SCAN_SIZE = 200
"""Requests one call looks at."""
MAX_SCANS = 10
"""Calls one page may take: a rare kind among many is found in several pages, some of them empty."""


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Which requests; what is not said does not matter."""

    status: Sequence[RequestState] = ()
    component: str | None = None
    component_type: str | None = None
    pool: str | None = None
    labels: Mapping[str, str] | None = None

    def encode(self) -> str:
        """As the script takes it."""
        said = {
            "status": dict.fromkeys(map(str, self.status), True),
            "name": self.component,
            "kind": self.component_type,
            "pool": self.pool,
            "labels": dict(self.labels or {}),
        }
        return json.dumps({name: value for name, value in said.items() if value})


class QueryStore:
    """What can be read of the workspaces on one Redis beside single things."""

    def __init__(self, client: RedisClient) -> None:
        self._scripts = Scripts(client)

    def list_requests(
        self, workspace: str, wanted: RequestFilter, before: int | None, count: int
    ) -> tuple[list[Request], int | None]:
        """A page of requests, newest first; and the number to ask for those before it (None: that was all)."""
        found: list[Request] = []
        for _ in range(MAX_SCANS):
            left = count - len(found)
            start = EXACT if before is None else before
            reply = self._scripts.call(
                "list_requests", workspace, before=start, count=left, scan=SCAN_SIZE, wanted=wanted.encode()
            )
            found += _decode_requests(reply.fields["found"])
            before = int(reply.fields["last"]) if reply.fields["last"] else None
            if before is None or len(found) == count:
                break
        return found, before

    def get_requests(self, workspace: str, ids: Sequence[str]) -> list[Request]:
        """Requests by their ids, in that order, without their places; those there are no more are left out."""
        found: list[Request] = []
        for first in range(0, len(ids), SCAN_SIZE):
            reply = self._scripts.call("get_requests", workspace, ids=json.dumps(ids[first : first + SCAN_SIZE]))
            found += _decode_requests(reply.fields["requests"])
        return found

    def list_active(self, workspace: str, pool: str, after: int, count: int) -> tuple[list[Request], int | None]:
        """A page of those who hold units of a pool, in order of grant, and the fence to go on after (None: that was all)."""
        reply = self._scripts.call("list_active", workspace, pool=pool, after=after, count=count)
        if reply.tag == "not_found":
            raise NotFound("pool", pool)
        return _decode_requests(reply.fields["found"]), int(reply.fields["last"]) if reply.fields["last"] else None

    def list_component_pools(self, workspace: str, component: str) -> list[str]:
        """The pools a component (`type/name`) has a policy in, the most preferred first."""
        return list(self._scripts.call("list_component_pools", workspace, component=component).fields["pools"])

    def list_latest_events(self, workspace: str, count: int) -> list[Event]:
        """The last events, the newest first."""
        entries = self._scripts.call("read_latest_events", workspace, count=count).fields["entries"]
        return [codec.decode_event(entry, codec.to_mapping(fields)) for entry, fields in entries]

    def get_unmanaged_mode(self, workspace: str) -> str:
        """What becomes of components without a policy."""
        reply: ScriptReply = self._scripts.call("get_workspace", workspace)
        return reply.fields["unmanaged"] or "reject"


def _decode_requests(flats: Iterable[codec.FlatHash]) -> list[Request]:
    found = []
    for flat in flats:
        at = codec.to_mapping(flat)
        found.append(codec.decode_request(at, at.get("lapses", "")))
    return found
