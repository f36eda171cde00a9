"""The audit's reads and repairs: each call compares a bounded stretch atomically, so it may run beside everything else."""

from __future__ import annotations

from collections.abc import Iterator

from app.domain.clock import Clock, RedisClock
from app.domain.models import AuditFinding
from app.store.connection import RedisClient
from app.store.scripts import ScriptReply, Scripts

INDEXES = ("requests", "waiting", "leases", "preemption_deadlines", "ended")
POOL_INDEXES = ("pool_queue", "pool_allocations", "pool_walltime_ends")
LANE_INDEXES = ("lane", "lane_walltimes")


class AuditStore:
    """Compares what Redis holds with what it should hold."""

    def __init__(self, client: RedisClient, clock: Clock | None = None, chunk: int = 200) -> None:
        self._scripts = Scripts(client)
        self._clock = clock or RedisClock()
        self._chunk = chunk

    def check_accounts(self, workspace: str, pool: str, *, repair: bool) -> list[AuditFinding]:
        """Every account of a pool against the sums over its allocations."""
        reply = self._scripts.call("audit_accounts", workspace, pool=pool, repair=repair)
        return _findings(reply)

    def check_holds(self, workspace: str, pool: str, *, repair: bool) -> list[AuditFinding]:
        """Who leaves for whom in a pool, and what is kept for them, against the requests."""
        return _findings(self._scripts.call("audit_holds", workspace, pool=pool, repair=repair))

    def check_requests(self, workspace: str, *, repair: bool) -> Iterator[AuditFinding]:
        """Every request against the structures it has to be in."""
        after = "-1"
        while after:
            reply = self._scripts.call(
                "audit_requests", workspace, now=self._clock.now_ms(), after=after, count=self._chunk, repair=repair
            )
            yield from _findings(reply)
            after = reply.fields["last"]

    def check_indexes(self, workspace: str, pools: list[str], *, repair: bool) -> Iterator[AuditFinding]:
        """Every sorted set of requests against the requests."""
        for kind in INDEXES:
            yield from self._scan("audit_index", workspace, repair=repair, kind=kind, part="")
        for pool in pools:
            for kind in POOL_INDEXES:
                yield from self._scan("audit_index", workspace, repair=repair, kind=kind, part=pool)
            for lane in self._scripts.call("list_lanes", workspace, pool=pool).fields["lanes"]:
                for kind in LANE_INDEXES:
                    yield from self._scan("audit_index", workspace, repair=repair, kind=kind, part=lane)

    def check_lanes(self, workspace: str, pool: str, *, repair: bool) -> Iterator[AuditFinding]:
        """Every lane of a pool against where it should stand and wait."""
        yield from self._scan("audit_lanes", workspace, repair=repair, pool=pool)

    def _scan(self, command: str, workspace: str, *, repair: bool, **names: str) -> Iterator[AuditFinding]:
        cursor = "0"
        while True:
            reply = self._scripts.call(command, workspace, cursor=cursor, count=self._chunk, repair=repair, **names)
            yield from _findings(reply)
            cursor = reply.fields.get("cursor", "0")
            if cursor == "0":
                return


def _findings(reply: ScriptReply) -> list[AuditFinding]:
    return [AuditFinding(*row) for row in reply.fields.get("differences", [])]
