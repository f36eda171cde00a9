"""The status of a queued request in its queues, read in one call: its position, and the shortfalls that block it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeAlias

from app.domain.clock import Clock, RedisClock
from app.domain.errors import NotFound
from app.domain.explanations import AccountUsage, QueueState, QueueStatus, Shortfall
from app.domain.models import Request
from app.store import codec
from app.store.connection import RedisClient
from app.store.scripts import Scripts
from app.store.snapshot_codec import decode_waiter

RUN_TIMES_BATCH = 200
"""The most policies whose run times one call reads."""


class QueueStatusStore:
    """The reader of the queue status of requests."""

    def __init__(self, client: RedisClient, clock: Clock | None = None) -> None:
        self._scripts = Scripts(client)
        self._clock = clock or RedisClock()

    def list_statuses(self, workspace: str, request: str) -> tuple[Request, tuple[QueueStatus, ...]]:
        """Return a request and its status in each pool whose queue it is in, the most preferred pool first."""
        reply = self._scripts.call("explain", workspace, now=self._clock.now_ms(), id=request)
        if reply.tag == "not_found":
            raise NotFound("request", request)
        fields, rows = reply.fields, reply.fields["pools"]
        request_record = codec.decode_request(codec.to_mapping(fields["request"]), fields["lapses"], positions_of(rows))
        return request_record, tuple(decode_status(row, fields["event"]) for row in rows)

    def read_clock(self, workspace: str) -> int:
        """Return the time by which the deadlines and leases of a workspace are judged."""
        return int(self._scripts.call("read_clock", workspace, now=self._clock.now_ms()).fields["now_ms"])

    def read_run_times(self, workspace: str, pool: str, components: Sequence[str]) -> dict[str, dict[int, int]]:
        """Return the run-time histogram of each component in a pool: component → step → count. Components without runs are left
        out. Bounded calls."""
        run_times: dict[str, dict[int, int]] = {}
        for first in range(0, len(components), RUN_TIMES_BATCH):
            batch = components[first : first + RUN_TIMES_BATCH]
            counts = self._scripts.call("read_run_times", workspace, pool=pool, components=json.dumps(batch)).fields["counts"]
            for component, flat in zip(batch, counts, strict=True):
                if flat:
                    run_times[component] = {
                        int(step): int(count) for step, count in codec.to_mapping(flat).items() if step != "all"
                    }
        return run_times


StatusRow: TypeAlias = Sequence[Sequence[Sequence[str]]]


def positions_of(rows: Sequence[StatusRow]) -> list[str]:
    """Return the pools and positions of rows, in turn."""
    return [str(text) for row in rows for text in row[:2]]


def decode_status(row: StatusRow, event: str = "") -> QueueStatus:
    """Return the status in a pool from a row of `lib/queue_status.lua`, read after an event of the workspace."""
    pool, position, waiting, state, other, bound_by, strict, lacks, numbers, rules, asker = row
    return QueueStatus(
        pool=str(pool),
        position=int(str(position)),
        waiter_count=int(str(waiting)),
        state=QueueState(str(state)),
        blocker=str(other),
        patience_owner=str(bound_by),
        strict=str(strict) == "1",
        shortfalls=tuple(Shortfall(kind, account, key, int(needed), int(room)) for kind, account, key, needed, room in lacks),
        usages=tuple(_decode_usage(each) for each in numbers),
        last_event=event,
        rules_version=str(rules),
        waiter=decode_waiter([str(word) for word in asker]),
    )


def _decode_usage(row: Sequence[str]) -> AccountUsage:
    account, key, limit, reserved, used, fixed, held_for_others = row
    return AccountUsage(account, key, int(limit) if limit else None, int(reserved), int(used), int(fixed), int(held_for_others))
