"""The audit's reads and repairs. Each call compares a bounded part atomically, so the audit may run at any time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from app.domain.clock import Clock, RedisClock
from app.domain.ledger_limits import LedgerLimits
from app.domain.models import AuditFinding
from app.store.audit_sums import PoolSums, SumsAudit
from app.store.connection import RedisClient
from app.store.scripts import ScriptReply, Scripts, scan_pages

INDEXES = ("requests", "waiting", "leases", "preemption_deadlines", "ended", "rejected")
POOL_INDEXES = ("pool_queue", "pool_allocations", "pool_walltime_ends")
LANE_INDEXES = ("lane", "lane_walltimes")
TASK_INDEXES = ("delayed", "outbox", "unstarted")
HOLD_KINDS = ("allocations", "records", "victims")
MAX_PAGE = 100
"""The most records that one call compares."""


class AuditStore:
    """The comparison of derived records in Redis with the requests, and their repair."""

    def __init__(self, client: RedisClient, clock: Clock | None = None, chunk: int | None = None) -> None:
        self._scripts = Scripts(client)
        self._clock = clock or RedisClock()
        self._chunk = min(chunk or LedgerLimits().chunk, MAX_PAGE)
        self._sums = SumsAudit(self._scripts, self._chunk)

    def check_accounts(self, workspace: str, pool: str, *, repair: bool) -> list[AuditFinding]:
        """Compare every account of a pool with the sums over its allocations and holds."""
        return self._sums.check(workspace, pool, PoolSums.account_differences, repair=repair)

    def check_holds(self, workspace: str, pool: str, *, repair: bool) -> Iterator[AuditFinding]:
        """Compare the victims and holds of a pool with the requests."""
        holds = scan_pages(
            self._scripts, "audit_holds", workspace, count=self._chunk, repair=repair, pool=pool, kind="holds", owner=""
        )
        for reply in holds:
            yield from _findings(reply)
            for owner in reply.fields.get("owners", []):
                yield from self._scan("audit_holds", workspace, repair=repair, pool=pool, kind="members", owner=owner)
        for kind in HOLD_KINDS:
            yield from self._scan("audit_holds", workspace, repair=repair, pool=pool, kind=kind, owner="")
        yield from self._sums.check(workspace, pool, PoolSums.hold_differences, repair=repair)

    def check_requests(self, workspace: str, *, repair: bool) -> Iterator[AuditFinding]:
        """Compare every request with the indexes it has to be in."""
        after = "-1"
        while after:
            reply = self._scripts.call(
                "audit_requests", workspace, now=self._clock.now_ms(), after=after, count=self._chunk, repair=repair
            )
            yield from _findings(reply)
            after = reply.fields["last"]

    def check_indexes(self, workspace: str, pools: list[str], *, repair: bool) -> Iterator[AuditFinding]:
        """Compare every sorted set of requests with the requests."""
        for kind in INDEXES:
            yield from self._scan("audit_index", workspace, repair=repair, kind=kind, part="")
        for pool in pools:
            for kind in POOL_INDEXES:
                yield from self._scan("audit_index", workspace, repair=repair, kind=kind, part=pool)
            for lane in self._list_lanes(workspace, pool):
                for kind in LANE_INDEXES:
                    yield from self._scan("audit_index", workspace, repair=repair, kind=kind, part=lane)

    def check_lanes(self, workspace: str, pool: str, *, repair: bool) -> Iterator[AuditFinding]:
        """Compare every lane of a pool with its position and parking slot."""
        cursor, lanes = "", list[str]()
        while cursor != "0" or lanes:
            page = {"cursor": cursor or "0", "lanes": json.dumps(lanes)}
            reply = self._scripts.call("audit_lanes", workspace, pool=pool, repair=repair, count=self._chunk, **page)
            yield from _findings(reply)
            cursor, lanes = reply.fields.get("cursor", "0"), reply.fields.get("lanes", [])

    def check_templates(self, workspace: str, pool: str, *, repair: bool) -> Iterator[AuditFinding]:
        """Compare the instances of templates with the indexes of their templates."""
        args: dict[str, Any] = {"now": self._clock.now_ms(), "pool": pool, "count": self._chunk, "repair": repair}
        templates: list[str] = []
        for reply in scan_pages(self._scripts, "audit_templates", workspace, kind="policies", template="", **args):
            yield from _findings(reply)
            templates += reply.fields.get("templates", [])
        for template in templates:
            for reply in scan_pages(self._scripts, "audit_templates", workspace, kind="instances", template=template, **args):
                yield from _findings(reply)
        counts = self._scripts.call("audit_templates", workspace, kind="counts", template="", cursor="0", **args)
        yield from _findings(counts)

    def check_limits(self, workspace: str, *, repair: bool) -> Iterator[AuditFinding]:
        """Compare the numbers for which there are limits with the requests, the tasks and the pools."""
        for kind in ("waiting", "delayed"):
            yield from self._scan("audit_waiting", workspace, repair=repair, kind=kind)
        for subject in self._scripts.call("list_subjects", workspace).fields["subjects"]:
            for kind in ("waiting", "lanes"):
                yield from self._scan("audit_subject", workspace, repair=repair, kind=kind, subject=subject)
        yield from self._scan("audit_shapes", workspace, repair=repair)
        yield from self._check_bodies(workspace, repair=repair)

    def _check_bodies(self, workspace: str, *, repair: bool) -> list[AuditFinding]:
        """Compare the bytes of kept bodies with their sum."""
        total, tasks = 0, dict[str, int]()
        earlier: dict[str, str] = {}
        for kind, cursor in (("requests", "-1"), *((index, "0") for index in TASK_INDEXES)):
            while cursor:
                reply = self._scripts.call("sum_bodies", workspace, kind=kind, cursor=cursor, count=self._chunk)
                earlier = earlier or {name: reply.fields[name] for name in ("saved", "deleted")}
                total += int(reply.fields["bytes"])
                tasks |= {task: int(size) for task, size in reply.fields["tasks"]}
                cursor = reply.fields["cursor"]
        sizes = total + sum(tasks.values())
        return _findings(self._scripts.call("audit_bodies", workspace, bytes=sizes, repair=repair, **earlier))

    def _list_lanes(self, workspace: str, pool: str) -> Iterator[str]:
        for components in scan_pages(self._scripts, "list_components", workspace, pool=pool, count=self._chunk):
            for component in components.fields["components"]:
                for lanes in scan_pages(self._scripts, "list_lanes", workspace, component=component, count=self._chunk):
                    yield from lanes.fields["lanes"]

    def _scan(self, command: str, workspace: str, *, repair: bool, **names: str) -> Iterator[AuditFinding]:
        for reply in scan_pages(self._scripts, command, workspace, count=self._chunk, repair=repair, **names):
            yield from _findings(reply)


def _findings(reply: ScriptReply) -> list[AuditFinding]:
    return [AuditFinding(*row) for row in reply.fields.get("differences", [])]
