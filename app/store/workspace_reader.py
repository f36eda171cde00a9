"""The facts of a workspace, read in bounded parts: all that decisions depend on, without the queues, which follow from it.

1. Note the newest event, and of each pool the number of its newest change without an event.
2. Read the requests that wait or are allocated, the groups, the policies and the recent preemptions, page by page.
3. Read the rows that changed since 1 again, a bounded part at a time. The last part also has the pools and the settings; then
   all rows are of that moment.

If pools were declared meanwhile, or the changes are not kept any more, the reader begins anew. Ended requests, the event
stream, messages of tasks, remembered replies and counters are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from app.domain.clock import Clock
from app.domain.dry_run import DryRunUnavailable
from app.domain.errors import RuleViolation
from app.store.codec import FlatHash, to_mapping
from app.store.keys import KEYS
from app.store.scripts import ScriptReply, Scripts

MAX_REQUESTS = 20_000
"""The most queued and allocated requests of a workspace that is copied. With more, few dry runs would end in time."""
READ_BATCH = 50
"""The most requests that one script reads, which takes a few milliseconds."""
LIST_PAGE = 1_000
"""The most ids that one script lists."""
ACCOUNT_PAGE = 100
"""The most groups, policies or preemptions that one script reads."""
MAX_CHANGES = 100
"""The most events whose requests and accounts one script reads."""
MAX_CHANGE_PAGES = 100
"""The most scripts that read changes; a workspace that needs more changes too fast."""
MAX_READS = 5
"""The most attempts to read the workspace."""

KeyRow: TypeAlias = tuple[str, str, FlatHash]
"""A key, its type and its content."""
TimeLimit: TypeAlias = Callable[[], AbstractContextManager[None]]
"""A context around each call, which raises DryRunUnavailable when the time is up."""


@dataclass(slots=True)
class WorkspaceRows:
    """The facts of a workspace."""

    extra_request: str
    """The id of a request that is copied even if it has ended; empty for none."""
    now_ms: int = 0
    contents: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    """Key → its type, and member or field → score or value; a member of a set has an empty value."""
    requests: dict[str, Sequence[Any]] = field(default_factory=dict)
    """Request → its row (`lua/lib/request_copies.lua`)."""
    lanes: dict[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    """Lane → the pools that it is attached to: pool, constraint, need, and since when (ms)."""
    rechecked_pools: list[str] = field(default_factory=list)
    """The pools whose lanes were being checked again."""

    def add_rows(self, rows: Iterable[KeyRow]) -> None:
        """Add rows of keys. A hash is replaced; to a set or sorted set each row adds members. A removed policy is removed."""
        for key, kind, values in rows:
            if kind == "removed":
                self._remove_policy(key, values)
                continue
            if kind == "hash" or key not in self.contents:
                self.contents[key] = kind, {}
            self.contents[key][1].update(dict.fromkeys(values, "") if kind == "set" else to_mapping(values))

    def _remove_policy(self, key: str, members: FlatHash) -> None:
        """Remove a policy from the keys of which it is a member. The first of them is completed by its template."""
        _, fields = self.contents.pop(key, ("hash", {}))
        (instances, *keys), components = members[::2], members[1::2]
        for name, component in zip((instances + fields.get("template", ""), *keys), components, strict=True):
            if name in self.contents:
                self.contents[name][1].pop(component, None)

    def add_requests(self, reply: ScriptReply) -> None:
        """Add the requests and the lanes of a reply."""
        self.requests.update((row[0], row) for row in reply.fields["found"])
        self.lanes.update(reply.fields["lanes"])

    def waiters(self) -> list[tuple[str, str, str]]:
        """Return the queued requests: id, lane, and end of the queue TTL."""
        return [(row[0], row[3], row[4]) for row in self.requests.values() if _is_waiter(row)]

    def key_rows(self, workspace: str) -> Iterator[KeyRow]:
        """Yield every key except the keys of the queues."""
        contents = {key: (kind, dict(values)) for key, (kind, values) in self.contents.items()}
        places: dict[tuple[str, str], dict[str, str]] = {}
        owners = {id_ for id_, row in self.requests.items() if _is_waiter(row) and len(row) > WAITER_COLUMNS}
        for id_, row in self.requests.items():
            if len(row) > REQUEST_COLUMNS or id_ == self.extra_request:
                yield KEYS["request"].of(workspace, id_), "hash", row[1]
                for name, part, value in _entries(row):
                    if value and (name, part) not in places:
                        key = KEYS[name]
                        place = key.of(workspace, *([part] if key.parameters else []))
                        places[name, part] = contents.setdefault(place, (key.type, {}))[1]
                    if value:
                        places[name, part][id_] = value
                if not _is_waiter(row) and row[8:9] not in ([], [""], ["-"], ["!"]):
                    contents.setdefault(KEYS["hold_victims"].of(workspace, row[3], row[8]), ("set", {}))[1][id_] = ""
                    if row[8] not in owners:  # its hold was ended: the copy orphans the rest of its victims
                        unfinished = contents.setdefault(KEYS["pool_unfinished"].of(workspace, row[3]), ("hash", {}))
                        unfinished[1][f"orphaning {row[8]}"] = "1"
                if _is_waiter(row) and len(row) > WAITER_COLUMNS:
                    yield KEYS["hold"].of(workspace, row[5], id_), "hash", row[7]
        for place, (kind, values) in contents.items():
            yield place, kind, list(values) if kind == "set" else [word for pair in values.items() for word in pair]


REQUEST_COLUMNS, WAITER_COLUMNS = 3, 5
"""The number of columns in the row of any request, and in the row of a waiter without a hold."""


def _is_waiter(row: Sequence[Any]) -> bool:
    """True if the request is queued: its row has a lane in the place of a pool."""
    return len(row) > REQUEST_COLUMNS and "|" in row[3]


def _entries(row: Sequence[Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the entries of a request in other keys: key, its parameter, score or value."""
    if len(row) >= REQUEST_COLUMNS:
        yield "requests", "", row[2]
    if _is_waiter(row):
        if len(row) > WAITER_COLUMNS:
            yield "pool_holds", row[5], row[6]
    elif len(row) > REQUEST_COLUMNS:
        yield "leases", "", row[4]
        yield from zip(ALLOCATION_KEYS, (row[3],) * len(ALLOCATION_KEYS), row[5:], strict=False)


ALLOCATION_KEYS = (
    "pool_allocations",
    "pool_allocation_records",
    "pool_walltime_ends",
    "pool_victims",
    "preemption_deadlines",
)
"""The keys of an allocation, in the order of its row."""


class WorkspaceReader:
    """The reader of the facts of a workspace."""

    def __init__(self, scripts: Scripts, clock: Clock) -> None:
        self._scripts, self._clock = scripts, clock

    def read(self, workspace: str, extra_request: str, time_limit: TimeLimit) -> WorkspaceRows:
        """Return the facts of one moment, with `extra_request` even if it has ended."""
        for _ in range(MAX_READS):
            reading = _WorkspaceReading(self._scripts, self._clock, workspace, WorkspaceRows(extra_request), time_limit)
            if reading.run():
                return reading.rows
        raise DryRunUnavailable("busy")


@dataclass(slots=True)
class _WorkspaceReading:
    """One attempt to read a workspace."""

    scripts: Scripts
    clock: Clock
    workspace: str
    rows: WorkspaceRows
    time_limit: TimeLimit

    def run(self) -> bool:
        """Read the workspace. Return False if the reader has to begin anew."""
        started = self._start()
        self._read_requests()
        for pool, *_ in started["pools"]:
            self._read_accounts(pool)
        return self._read_changes(started)

    def _call(self, command: str, **args: Any) -> ScriptReply:
        with self.time_limit():
            return self.scripts.call(command, self.workspace, **args)

    def _start(self) -> Mapping[str, Any]:
        reply = self._call("start_copy", now=self.clock.now_ms(), most=MAX_REQUESTS)
        if reply.tag == "too_many":
            message = f"{reply.fields['live']} requests wait or hold units; dry runs are possible up to {MAX_REQUESTS}"
            raise RuleViolation("too_many_requests_live", message)
        self.rows.rechecked_pools = [name for name, _, _, reviewing in reply.fields["pools"] if reviewing]
        return reply.fields

    def _read_requests(self) -> None:
        ids = [self.rows.extra_request] if self.rows.extra_request else []
        for kind in ("waiting", "leases"):
            ids += [id_ for page in self._pages("list_live_ids", LIST_PAGE, kind=kind) for id_ in page["ids"]]
        ids = list(dict.fromkeys(ids))
        for first in range(0, len(ids), READ_BATCH):
            self.rows.add_requests(self._call("copy_requests", ids=json.dumps(ids[first : first + READ_BATCH])))

    def _read_accounts(self, pool: str) -> None:
        for kind in ("groups", "policies", "preemptions"):
            for page in self._pages("copy_accounts", ACCOUNT_PAGE, pool=pool, kind=kind):
                self.rows.add_rows(page["rows"])

    def _pages(self, command: str, count: int, **args: str) -> Iterator[Mapping[str, Any]]:
        cursor = ""
        while cursor != "0":
            fields = self._call(command, cursor=cursor or "0", count=count, **args).fields
            yield fields
            cursor = fields["cursor"]

    def _read_changes(self, started: Mapping[str, Any]) -> bool:
        event, pools = started["event"], started["pools"]
        for _ in range(MAX_CHANGE_PAGES):
            reply = self._call(
                "copy_workspace",
                now=self.clock.now_ms(),
                event=event,
                pools=json.dumps(pools),
                since=started["now"],
                most=MAX_CHANGES,
            )
            if reply.tag == "moved":
                return False
            event, pools = reply.fields["event"], reply.fields["pools"]
            self.rows.add_rows(reply.fields["rows"])
            self.rows.add_requests(reply)
            if reply.fields["more"] != "1":
                self.rows.now_ms = int(reply.fields["now"])
                return True
        return False
