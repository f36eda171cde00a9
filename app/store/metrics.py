"""The numbers behind the metrics, read from Redis at each scrape: one bounded script a pool, one a workspace."""

from __future__ import annotations

from collections.abc import Sequence

from app.domain.clock import Clock, RedisClock
from app.domain.metrics import PolicyMetrics, PoolMetrics, WorkspaceMetrics
from app.domain.queue_score import MAX_AMOUNT
from app.store import codec
from app.store.connection import RedisClient
from app.store.scripts import Scripts

BILLION = 10**9
"""The unit of a stored satisfaction ratio: billionths."""
STARVATION_LEVELS = {"": 0, "starving": 1, "aggressively_starving": 2}


class MetricsStore:
    """Reads the metrics of workspaces and pools."""

    def __init__(self, client: RedisClient, clock: Clock | None = None) -> None:
        self._scripts = Scripts(client)
        self._clock = clock or RedisClock()

    def get_workspace(self, workspace: str) -> WorkspaceMetrics:
        """Return the counters of a workspace."""
        fields = self._scripts.call("read_counters", workspace).fields
        counts = {name: int(count) for name, count in codec.to_mapping(fields["counts"]).items() if count.isdecimal()}
        numbers = {name: int(fields[name]) for name in ("submitted", "queued", "live", "leaving")}
        return WorkspaceMetrics(**numbers, counts=counts)

    def get_pool(self, workspace: str, pool: str) -> PoolMetrics | None:
        """Return the metrics of a pool and its policies; None if the pool is deleted."""
        reply = self._scripts.call("read_pool_metrics", workspace, now=self._clock.now_ms(), pool=pool)
        if reply.tag == "not_found":
            return None
        fields = reply.fields
        keys, now_ms = fields["keys"], int(fields["now"])
        capacity, used, reserved, patience_hold, victim_holds = _columns(keys, fields["pool"])
        return PoolMetrics(
            name=pool,
            capacity=capacity,
            used=used,
            reserved=reserved,
            on_hold={key: patience_hold.get(key, 0) + victim_holds.get(key, 0) for key in keys},
            queued=int(fields["queued"]),
            active=int(fields["active"]),
            leaving=int(fields["leaving"]),
            policies=tuple(_policy(keys, now_ms, row) for row in fields["policies"]),
        )


def _columns(keys: Sequence[str], flat: Sequence[str]) -> list[dict[str, int]]:
    columns = [flat[start : start + len(keys)] for start in range(0, len(flat), len(keys))]
    return [{key: int(units) for key, units in zip(keys, column, strict=True) if units} for column in columns]


def _policy(keys: Sequence[str], now_ms: int, row: Sequence[str]) -> PolicyMetrics:
    component, queued, since_ms, score, status, amounts = row
    used, reserved, limit = _columns(keys, amounts)
    return PolicyMetrics(
        component=component,
        queued=int(queued),
        oldest_wait_s=max(0, now_ms - int(since_ms)) / 1000 if since_ms else 0,
        used=used,
        reserved=reserved,
        limit=limit,
        satisfaction=int(score) / BILLION if score and int(score) < MAX_AMOUNT else None,
        starving=STARVATION_LEVELS[status] if score else None,
    )
