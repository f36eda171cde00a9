"""Snapshots of pools: a small pool in one script, a large one in bounded parts.

1. Note the change number of the pool: the newest event of the workspace, and the newest change without an event.
2. Read allocations, groups and policies page by page, each page at another moment.
3. Read the rest of the pool in one script, together with the present rows of all that changed since 1. They replace the rows
   read before, so that every row is of this last moment. If more changed than one script reads, read that page by page and
   repeat.
4. Keep the rows with their change number: the next snapshot begins with 3.

If the changes are not kept any more, the reader begins anew. After the third attempt the snapshot has the rows read so far,
even if they contradict each other: the script of a step checks again whether the step holds. Waiters of lanes beyond the first
page are read between two calls of 3; a waiter that changed meanwhile is left out. Demand beyond the first page is read last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from app.domain.clock import Clock
from app.domain.snapshot import PoolSnapshot
from app.store.codec import to_mapping
from app.store.scripts import ScriptReply, Scripts
from app.store.snapshot_codec import PoolRows, Rows, decode_demand, decode_snapshot

MAX_TRIES = 3
"""The most attempts at a snapshot of one moment."""
MAX_CHANGE_PAGES = 30
"""The most scripts that read changes in one attempt. A reader further behind begins anew, which takes no longer."""


class SnapshotSizes(NamedTuple):
    """The most rows that one script reads of a pool. Each of these numbers takes a few milliseconds."""

    waiters: int = 1000
    """The most waiters in one snapshot, and the most lanes that are examined."""
    allocations: int = 500
    """The most allocations; a pool with more is read in parts."""
    accounts: int = 150
    """The most groups and policies; a pool with more is read in parts."""
    lanes: int = 50
    """The most lanes; a pool with more is read in parts."""
    changes: int = 100
    """The most events, and the most other changes, of which one script reads the rows."""
    allocation_page: int = 200
    account_page: int = 100


class UnfinishedWork(Exception):  # noqa: N818 - a state of the world
    """Scripts left unfinished work in this pool; it is resumed before the planner runs."""


@dataclass(slots=True)
class _PoolCopy:
    """The rows of a large pool, and the change number up to which they are complete. An empty `event` means no rows."""

    rows: PoolRows = field(default_factory=PoolRows)
    event: str = ""
    number: str = ""
    rules: str = ""


class SnapshotReader:
    """The reader of snapshots."""

    def __init__(self, clock: Clock, sizes: SnapshotSizes) -> None:
        self._clock, self._sizes = clock, sizes
        self._copies: dict[tuple[str, str], _PoolCopy] = {}

    def read(self, scripts: Scripts, workspace: str, pool: str, *, even_if_idle: bool) -> PoolSnapshot | None:
        """Return the pool if it has an open decision, or `even_if_idle`. Raise UnfinishedWork if scripts left work in it."""
        # while one thread uses the copy, another thread reads the pool anew
        copy = self._copies.pop((workspace, pool), None) or _PoolCopy()
        reading = _SnapshotReading(scripts, self._clock, self._sizes, workspace, pool, copy)
        try:
            return reading.run(even_if_idle=even_if_idle)
        finally:
            if reading.is_reusable:
                self._copies[workspace, pool] = reading.copy


class _SnapshotReading:
    """One snapshot of one pool while it is being read."""

    def __init__(
        self, scripts: Scripts, clock: Clock, sizes: SnapshotSizes, workspace: str, pool: str, copy: _PoolCopy
    ) -> None:
        self._scripts, self._clock, self._sizes, self._workspace, self._pool = scripts, clock, sizes, workspace, pool
        self.copy = copy
        self.is_reusable = False
        self._tries = 0
        self._later_waiters: dict[str, tuple[str, ...]] | None = None
        """Waiter of a later lane → its row."""
        self._preferred: dict[str, Sequence[str]] = {}

    @property
    def _is_last_try(self) -> bool:
        return self._tries >= MAX_TRIES

    def run(self, *, even_if_idle: bool) -> PoolSnapshot | None:
        """Read until all rows are of one moment, or until no attempts are left."""
        while True:
            reply = self._read_rest(even_if_idle)
            if reply.tag == "found":
                if self._merge(reply):
                    return self._decode(reply)
            elif reply.tag == "large":
                self._read_parts(reply)
            elif reply.tag in ("moved", "lost"):
                self._tries += 1
                if reply.tag == "lost" or not self._catch_up():
                    self.copy = _PoolCopy()
            elif reply.tag == "unfinished":
                self.is_reusable = True
                raise UnfinishedWork(self._pool)
            else:
                self.is_reusable = reply.tag == "quiet" and bool(self.copy.event)
                return None

    def _read_rest(self, even_if_idle: bool) -> ScriptReply:
        sizes, copy = self._sizes, self.copy
        return self._call(
            "read_snapshot",
            now=self._clock.now_ms(),
            most=sizes.waiters,
            anyway=even_if_idle,
            max_allocations=sizes.allocations,
            max_accounts=sizes.accounts,
            max_lanes=sizes.lanes,
            max_changes=sizes.changes,
            event=copy.event,
            number=copy.number,
            force=self._is_last_try,
        )

    def _call(self, command: str, **args: Any) -> ScriptReply:
        return self._scripts.call(command, self._workspace, pool=self._pool, **args)

    def _merge(self, reply: ScriptReply) -> bool:
        """Add the rows of a reply. Return False if more has to be read before the snapshot is complete."""
        fields, copy, is_whole = reply.fields, self.copy, not reply.fields["event"]
        if is_whole:
            copy.rows.replace_all(fields)
            copy.event = copy.number = ""
        else:
            self._drop_changed_waiters(fields["allocations"][::2])
            copy.rows.update(fields)
            copy.event, copy.number = fields["event"], fields["number"]
        if not is_whole and not self._is_last_try:
            rules = to_mapping(fields["pool"]).get("rules", "0")
            if copy.rules != rules:  # accounts were declared, which writes no event
                self._tries += 1
                copy.rules, copy.rows.accounts = rules, {}
                self._read_accounts()
                return False
            if not copy.rows.is_complete(fields):
                self._tries += 1
                self.copy = _PoolCopy()
                return False
        if fields["lanes"] and self._later_waiters is None:
            self._read_later_waiters(fields["lanes"])
            return False
        return True

    def _read_parts(self, reply: ScriptReply) -> None:
        self.copy = copy = _PoolCopy(event=reply.fields["event"], number=reply.fields["number"], rules=reply.fields["rules"])
        last = "-inf"
        while last:
            page = self._call("read_allocations", after=last, count=self._sizes.allocation_page)
            copy.rows.update(page.fields)
            last = page.fields["last"]
        self._read_accounts()

    def _read_accounts(self) -> None:
        for kind in ("group", "policy"):
            cursor = ""
            while cursor != "0":
                page = self._call("read_accounts", kind=kind, cursor=cursor or "0", count=self._sizes.account_page)
                self.copy.rows.update_accounts(page.fields["accounts"])
                cursor = page.fields["cursor"]

    def _catch_up(self) -> bool:
        """Read the changed rows, page by page. Return False if the changes are not kept any more, or are more than all rows."""
        copy = self.copy
        for _ in range(MAX_CHANGE_PAGES):
            page = self._call("read_changes", event=copy.event, number=copy.number, most=self._sizes.changes)
            if page.tag != "read":
                return False
            self._drop_changed_waiters(page.fields["allocations"][::2])
            copy.rows.update(page.fields)
            copy.event, copy.number = page.fields["event"], page.fields["number"]
            if page.fields["more"] != "1":
                return True
        return False

    def _read_later_waiters(self, lanes: Sequence[str]) -> None:
        size, lane_count = self._sizes.lanes, self._sizes.lanes + len(lanes)
        self._later_waiters = {}
        for first in range(0, len(lanes), size):
            page_lanes = json.dumps(lanes[first : first + size])
            page = self._call("read_waiters", lanes=page_lanes, lane_count=lane_count, most=self._sizes.waiters)
            if page.tag != "read":
                return
            self._later_waiters.update((row[0], tuple(row)) for row in page.fields["waiters"])
            self._preferred.update((component, before) for component, *before in page.fields["preferred"])

    def _drop_changed_waiters(self, ids: Sequence[str]) -> None:
        if self._later_waiters is not None:
            for id_ in ids:
                self._later_waiters.pop(id_, None)

    def _decode(self, reply: ScriptReply) -> PoolSnapshot:
        fields, rows = reply.fields, self.copy.rows
        if self._is_last_try:
            rows.remove_contradictions()
        self.is_reusable = not self._is_last_try
        fields["preferred"] = [*([component, *before] for component, before in self._preferred.items()), *fields["preferred"]]
        demand = decode_demand(fields["demand"], *self._remaining_demand(fields["next_page"]))
        return decode_snapshot(self._pool, fields, rows, self._waiters(fields), demand)

    def _waiters(self, fields: dict[str, Any]) -> Rows:
        """Return the waiters of the first lanes, then waiters of the other lanes, up to the most of a snapshot."""
        waiters, lanes = fields["waiters"], frozenset(fields["lanes"])
        later_waiters = [row for row in (self._later_waiters or {}).values() if row[1] in lanes]
        return [*waiters, *later_waiters[: self._sizes.waiters - len(waiters)]]

    def _remaining_demand(self, after: str) -> Iterator[Rows]:
        """Yield the demand of the lanes beyond the first page."""
        while after:
            reply = self._call("read_demand", after=after, count=self._sizes.lanes)
            if reply.tag != "read":
                return
            yield reply.fields["rows"]
            after = reply.fields["next_page"]
