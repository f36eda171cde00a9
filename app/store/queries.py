"""Lists and other looks that change nothing: one typed method per reading command, each bounded in what one call touches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.domain.errors import NotFound
from app.domain.models import Event, Request
from app.domain.queue_score import EXACT
from app.domain.states import State
from app.store import codec
from app.store.scripts import Client, Reply, Scripts

SCAN = 200
"""Requests one call looks at."""
SCANS = 10
"""Calls one page may take: a rare kind among many is found in several pages, some of them empty."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which requests; what is not said does not matter."""

    status: Sequence[State] = ()
    component: str | None = None
    component_type: str | None = None
    pool: str | None = None
    labels: Mapping[str, str] | None = None

    def encoded(self) -> str:
        """As the script takes it."""
        said = {
            "status": dict.fromkeys(map(str, self.status), True),
            "name": self.component,
            "kind": self.component_type,
            "pool": self.pool,
            "labels": dict(self.labels or {}),
        }
        return json.dumps({name: value for name, value in said.items() if value})


class Lists:
    """What can be read of the workspaces on one Redis beside single things."""

    def __init__(self, client: Client) -> None:
        self._scripts = Scripts(client)

    def requests(self, workspace: str, wanted: Wanted, before: int | None, count: int) -> tuple[list[Request], int | None]:
        """A page of requests, newest first; and the number to ask for those before it (None: that was all)."""
        found: list[Request] = []
        for _ in range(SCANS):
            left = count - len(found)
            start = EXACT if before is None else before
            reply = self._scripts.call("listed", workspace, before=start, count=left, scan=SCAN, wanted=wanted.encoded())
            found += _requests(reply.fields["found"])
            before = int(reply.fields["last"]) if reply.fields["last"] else None
            if before is None or len(found) == count:
                break
        return found, before

    def fetch(self, workspace: str, ids: Sequence[str]) -> list[Request]:
        """Requests by their ids, in that order, without their places; those there are no more are left out."""
        found: list[Request] = []
        for first in range(0, len(ids), SCAN):
            reply = self._scripts.call("fetched", workspace, ids=json.dumps(ids[first : first + SCAN]))
            found += _requests(reply.fields["requests"])
        return found

    def active(self, workspace: str, pool: str, after: int, count: int) -> tuple[list[Request], int | None]:
        """A page of those who hold units of a pool, in order of grant, and the fence to go on after (None: that was all)."""
        reply = self._scripts.call("active", workspace, pool=pool, after=after, count=count)
        if reply.tag == "not_found":
            raise NotFound("pool", pool)
        return _requests(reply.fields["found"]), int(reply.fields["last"]) if reply.fields["last"] else None

    def pools_of(self, workspace: str, component: str) -> list[str]:
        """The pools a component (`type/name`) has a policy in, the most preferred first."""
        return list(self._scripts.call("component_pools", workspace, component=component).fields["pools"])

    def newest(self, workspace: str, count: int) -> list[Event]:
        """The last events, the newest first."""
        entries = self._scripts.call("newest", workspace, count=count).fields["entries"]
        return [codec.event(entry, codec.pairs(fields)) for entry, fields in entries]

    def unmanaged(self, workspace: str) -> str:
        """What becomes of components without a policy."""
        reply: Reply = self._scripts.call("workspace_view", workspace)
        return reply.fields["unmanaged"] or "reject"


def _requests(flats: Iterable[codec.Flat]) -> list[Request]:
    found = []
    for flat in flats:
        at = codec.pairs(flat)
        found.append(codec.request(at, at.get("lapses", "")))
    return found
