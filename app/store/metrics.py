"""The numbers behind the metrics, read from Redis at each scrape by bounded scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.domain.amounts import Amounts
from app.domain.clock import Clock, RedisClock
from app.domain.metrics import PolicyMetrics, PoolMetrics, WorkspaceMetrics
from app.domain.names import is_template
from app.domain.queue_score import MAX_AMOUNT
from app.store import codec, workspace_codec
from app.store.connection import RedisClient
from app.store.scripts import ScriptReply, Scripts

BILLION = 10**9
"""The unit of a stored satisfaction ratio: billionths."""
PAGE = 100
"""The policies that one call reads, approximately: SSCAN may return more."""
STARVATION_LEVELS = {"": 0, "starving": 1, "aggressively_starving": 2}


class MetricsStore:
    """The reader of the metrics of workspaces and pools."""

    def __init__(self, client: RedisClient, clock: Clock | None = None) -> None:
        self._scripts = Scripts(client)
        self._clock = clock or RedisClock()

    def get_workspace(self, workspace: str) -> WorkspaceMetrics:
        """Return the counters of a workspace, and the use of its limits."""
        fields = self._scripts.call("read_counters", workspace).fields
        counts = {name: int(count) for name, count in codec.to_mapping(fields["counts"]).items() if count.isdecimal()}
        numbers = {name: int(fields[name]) for name in ("submitted", "queued", "live", "leaving")}
        settings = workspace_codec.decode_workspace(self._scripts.call("get_workspace", workspace).fields)
        return WorkspaceMetrics(**numbers, counts=counts, limits=settings.use, component_limits=settings.component_use)

    def get_pool(self, workspace: str, pool: str) -> PoolMetrics | None:
        """Return the metrics of a pool and its policies; None if the pool is deleted. The calls are bounded."""
        policies: dict[str, PolicyMetrics] = {}
        templates: dict[str, str] = {}
        times: dict[str, int] = {}
        reply = self._read_pool(workspace, pool, "0", [])
        while True:
            if reply.tag == "not_found":
                return None
            fields = reply.fields
            keys, now_ms = tuple(fields["keys"]), int(fields["now"])
            rows = (_policy(fields["policy_columns"], keys, now_ms, row) for row in fields["policies"])
            policies |= {policy.component: policy for policy in rows}
            templates |= {component: template for component, *_, template, _ in fields["policies"] if template}
            times |= {component: int(count) for component, *_, count in fields["policies"] if count}
            if fields["cursor"] == "0" and not fields["components"]:
                break
            reply = self._read_pool(workspace, pool, fields["cursor"], fields["components"])
        return PoolMetrics(
            name=pool,
            keys=keys,
            numbers=_numbers(fields["numbers"]),
            amounts=_amounts(fields["columns"], keys, fields["amounts"]),
            policies=tuple(_combine(policies, templates, times)),
        )

    def _read_pool(self, workspace: str, pool: str, cursor: str, components: Sequence[str]) -> ScriptReply:
        """Read the numbers of a pool and of the policies of these components; if there are none, of the next page."""
        page = {"cursor": cursor, "components": json.dumps(components)}
        return self._scripts.call("read_pool_metrics", workspace, now=self._clock.now_ms(), pool=pool, count=PAGE, **page)


def _numbers(flat: Sequence[str]) -> dict[str, int]:
    return {name: int(number) for name, number in codec.to_mapping(flat).items() if number != ""}


def _amounts(columns: Sequence[str], keys: Sequence[str], flat: Sequence[str]) -> dict[str, Amounts]:
    rows = (flat[start : start + len(keys)] for start in range(0, len(flat), len(keys)))
    return {
        column: {key: int(units) for key, units in zip(keys, row, strict=True) if units}
        for column, row in zip(columns, rows, strict=True)
    }


def _policy(columns: Sequence[str], keys: Sequence[str], now_ms: int, row: Sequence[Any]) -> PolicyMetrics:
    component, status, flat, amount_row, *_ = row
    numbers, amounts = _numbers(flat), _amounts(columns, keys, amount_row)
    reserved = amounts["reserved"]
    oldest_ms, score = numbers.get("oldest_ms", now_ms), numbers.get("score")
    return PolicyMetrics(
        component=component,
        numbers=numbers,
        amounts=amounts,
        oldest_wait_s=max(0, now_ms - oldest_ms) / 1000 if "oldest_ms" in numbers else 0,
        satisfaction=score / BILLION if score is not None and score < MAX_AMOUNT else None,
        starving=None if score is None else STARVATION_LEVELS[status],
        borrowed={key: units - reserved.get(key, 0) for key, units in amounts["used"].items() if units > reserved.get(key, 0)},
    )


def _combine(
    policies: Mapping[str, PolicyMetrics], templates: Mapping[str, str], times: Mapping[str, int]
) -> Iterator[PolicyMetrics]:
    """Yield the declared policies. Instances are added to their template, so their names never become labels."""
    instances: dict[str, list[PolicyMetrics]] = {}
    for component, template in templates.items():
        instances.setdefault(template, []).append(policies[component])
    for component, policy in policies.items():
        if is_template(component):
            yield policy.combine(instances.get(component, []), times.get(component, 1))
        elif component not in templates:
            yield policy
