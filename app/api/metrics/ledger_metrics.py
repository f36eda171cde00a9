"""The families of numbers that are read from Redis: pools and policies as they stand, and what the scripts have counted.

Labels are workspaces, pools, components that have a policy, keys, states, profiles and codes of reasons: never a request, nor
anything that somebody wrote. What is counted of a pool goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from app.api.metrics.text_format import Family, labels
from app.bootstrap import Services
from app.domain.amounts import Amounts
from app.domain.metrics import (
    CHECKPOINT_BOUNDS_S,
    PASS_BOUNDS_S,
    WAIT_BOUNDS_S,
    PolicyMetrics,
    PoolMetrics,
    WorkspaceMetrics,
)


class PoolMetricFamilies:
    """Pools and policies, as they stand."""

    AMOUNTS: Mapping[str, str] = {
        "capacity": "Units of a key there are.",
        "used": "Units of a key that somebody holds.",
        "reserved": "Units of a key that are promised to groups and policies.",
        "borrowed": "Units of a key that policies hold beyond what they have reserved.",
        "held": "Units of a key that are kept free for somebody who waits.",
    }
    NUMBERS: Mapping[str, str] = {
        "queue_length": "Requests that wait.",
        "active": "Requests that hold units.",
        "preempting": "Requests that hold units and have to leave.",
        "oldest_wait_seconds": "Since the submission of who was submitted first of those that wait; 0 if nobody waits.",
    }
    OF_POLICY: Mapping[str, str] = {
        "used": "Units of a key that the policy holds.",
        "reserved": "Units of a key that are promised to the policy.",
        "limit": "Units of a key the policy may hold at most, where it has a limit of its own.",
        "borrowed": "Units of a key that the policy holds beyond what it has reserved.",
        "queue_length": "Requests of the component that wait for the pool.",
        "oldest_wait_seconds": "Since the submission of who was submitted first of those of them that wait; 0 if nobody waits.",
        "satisfaction": "Fair share: how much of what is due to the policy it has; no row where nothing is due.",
        "starving": "Fair share: whether it has had too little for too long; 0 no, 1 yes, 2 aggressively.",
    }

    def __init__(self) -> None:
        told = {**self.AMOUNTS, **self.NUMBERS}
        self._pool = {name: Family(f"poolkeeper_pool_{name}", "gauge", says) for name, says in told.items()}
        self._policy = {name: Family(f"poolkeeper_policy_{name}", "gauge", says) for name, says in self.OF_POLICY.items()}

    def add(self, workspace: str, pool: PoolMetrics) -> None:
        """One more pool with its policies."""
        where = labels(workspace=workspace, pool=pool.name)
        keys = [(key, labels(key=key)) for key in sorted(pool.capacity)]
        borrowed = dict.fromkeys(pool.capacity, 0)
        for policy in pool.policies:
            over = {key: max(0, policy.used.get(key, 0) - policy.reserved.get(key, 0)) for key in pool.capacity}
            for key, units in over.items():
                borrowed[key] += units
            self._add_policy(f"{where},{labels(component=policy.component)}", policy, over, keys)
        columns = (pool.capacity, pool.used, pool.reserved, borrowed, pool.on_hold)
        for name, column in zip(self.AMOUNTS, columns, strict=True):
            _rows(self._pool[name], where, column, keys)
        oldest = max((policy.oldest_wait_s for policy in pool.policies), default=0)
        for name, value in zip(self.NUMBERS, (pool.queued, pool.active, pool.leaving, oldest), strict=True):
            self._pool[name].add(where, value)

    def _add_policy(self, where: str, policy: PolicyMetrics, over: Amounts, keys: Sequence[tuple[str, str]]) -> None:
        families = self._policy
        for name, column in (("used", policy.used), ("reserved", policy.reserved), ("borrowed", over)):
            _rows(families[name], where, column, keys)
        _rows(families["limit"], where, policy.limit, [(key, label) for key, label in keys if key in policy.limit])
        families["queue_length"].add(where, policy.queued)
        families["oldest_wait_seconds"].add(where, policy.oldest_wait_s)
        for name, value in (("satisfaction", policy.satisfaction), ("starving", policy.starving)):
            if value is not None:
                families[name].add(where, value)

    def families(self) -> Iterator[Family]:
        """All of them."""
        yield from self._pool.values()
        yield from self._policy.values()


def _rows(family: Family, where: str, column: Amounts, keys: Sequence[tuple[str, str]]) -> None:
    for key, label in keys:
        family.add(f"{where},{label}", column.get(key, 0))


class CounterFamilies:
    """What became of requests, as the scripts have counted it since the workspace is, and a pool since it is."""

    def __init__(self) -> None:
        def family(name: str, kind: str, says: str) -> Family:
            return Family(f"poolkeeper_{name}", kind, says)

        self._now = family("workspace_requests", "gauge", "Requests that wait, hold units, and have to leave.")
        self._moves = family("requests_total", "counter", "Requests that came into a state, by the reason's code.")
        self._waits = family("wait_seconds", "histogram", "How long those granted had waited, since they entered the queue.")
        self._looks = family("reconcile_seconds", "histogram", "How long the passes that decide took.")
        self._stopped = family("preemptions_total", "counter", "Allocations that had to leave.")
        self._saving = family(
            "preemption_checkpoint_duration_seconds",
            "histogram",
            "How long it took to save the work, from the directive to the word that it is done.",
        )
        self._requeued = family("preemption_victim_requeue_total", "counter", "Preempted, and back in the queue.")
        self._failed = family("preemption_failed_checkpoint_total", "counter", "Preempted, and their work was not saved.")

    def add(self, workspace: str, seen: WorkspaceMetrics) -> None:
        """One more workspace."""
        here = labels(workspace=workspace)
        states = {"queued": seen.queued, "allocated": seen.live - seen.leaving, "preempting": seen.leaving}
        for state, count in states.items():
            self._now.add(f"{here},{labels(state=state)}", count)
        self._add_moves(workspace, seen)
        for (pool, profile, reason), count in _of(seen, "preemptions"):
            self._stopped.add(labels(workspace=workspace, pool=pool, profile=profile, reason=reason), count)
        for family, name in ((self._requeued, "requeued"), (self._failed, "failed_checkpoints")):
            for (pool,), count in _of(seen, name):
                family.add(labels(workspace=workspace, pool=pool), count)
        for (pool,), total_ms in _of(seen, "checkpoints_ms"):
            rising = [seen.counts.get(f"checkpoints|{pool}|{bound}", 0) for bound in (*CHECKPOINT_BOUNDS_S, "inf")]
            each = [count - before for count, before in zip(rising, (0, *rising), strict=False)]
            self._saving.add_buckets(labels(workspace=workspace, pool=pool), CHECKPOINT_BOUNDS_S, each, total_ms / 1000)
        if "reconciles" in seen.counts:
            numbered = _numbered(seen, "looks|", len(PASS_BOUNDS_S))
            numbered[-1] = seen.counts["reconciles"] - sum(numbered[:-1])  # those from before they were counted so, too
            self._looks.add_buckets(here, PASS_BOUNDS_S, numbered, seen.counts.get("reconcile_ms", 0) / 1000)

    def _add_moves(self, workspace: str, seen: WorkspaceMetrics) -> None:
        def add(pool: str, state: str, reason: str, count: int) -> None:
            self._moves.add(labels(workspace=workspace, pool=pool, state=state, reason=reason), count)

        add("", "queued", "", seen.submitted)
        for pool in sorted({pool for (pool, _), _ in _of(seen, "waits")}):
            numbered = _numbered(seen, f"waits|{pool}|", len(WAIT_BOUNDS_S))
            total_s = seen.counts.get(f"waits_ms|{pool}", 0) / 1000
            add(pool, "allocated", "", sum(numbered))
            self._waits.add_buckets(labels(workspace=workspace, pool=pool), WAIT_BOUNDS_S, numbered, total_s)
        for (pool, state, reason), count in _of(seen, "moves"):
            add(pool, state, reason, count)

    def families(self) -> Iterator[Family]:
        """All of them."""
        yield from (self._now, self._moves, self._waits, self._looks)
        yield from (self._stopped, self._saving, self._requeued, self._failed)


def _of(seen: WorkspaceMetrics, name: str) -> Iterator[tuple[tuple[str, ...], int]]:
    yield from seen.by_name.get(name, {}).items()


def _numbered(seen: WorkspaceMetrics, prefix: str, bounds: int) -> list[int]:
    """How many were up to each bound and no other before it, and last of all beyond."""
    return [seen.counts.get(f"{prefix}{number}", 0) for number in range(1, bounds + 2)]


class OutboxFamilies:
    """How the tasks stand that wait to be sent to their brokers, and what became of those that were."""

    GAUGES: Mapping[str, str] = {
        "tasks_delayed": "Tasks that wait for their time.",
        "outbox_waiting": "Tasks to be sent to their broker now.",
        "outbox_oldest_seconds": "How long the oldest of them has been waiting for that.",
        "tasks_unstarted": "Tasks sent that no worker has begun.",
    }
    COUNTERS: Mapping[str, tuple[str, str]] = {
        "dispatches": ("dispatched", "Tasks sent to their broker, and word sent there of those that will never run."),
        "redispatches": ("redispatched", "Tasks sent once more under the same fence, as no worker had begun them in time."),
        "dispatch_failures": ("dispatch_failures", "Times that a broker took nothing."),
        "tasks_not_started": ("not_started", "Tasks taken back, as no worker had begun them after several times."),
        "tasks_redelivered": ("redelivered", "Tasks that entered the queue again, as their worker was lost."),
    }
    """Name: what the ledger counts it as, and what it is."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._gauges = {name: Family(f"poolkeeper_{name}", "gauge", says) for name, says in self.GAUGES.items()}
        self._counters = {
            name: Family(f"poolkeeper_{name}_total", "counter", says) for name, (_, says) in self.COUNTERS.items()
        }

    def add(self, workspace: str, seen: WorkspaceMetrics) -> None:
        """One more workspace."""
        outbox, of = self._services.tasks.get_outbox_status(workspace), labels(workspace=workspace)
        for name, (counted, _) in self.COUNTERS.items():
            self._counters[name].add(of, seen.counts.get(counted, 0))
        waited_ms = 0 if outbox.oldest_ms is None else max(0, outbox.now_ms - outbox.oldest_ms)
        values = (outbox.delayed, outbox.waiting, waited_ms / 1000, outbox.unstarted)
        for name, value in zip(self.GAUGES, values, strict=True):
            self._gauges[name].add(of, value)

    def families(self) -> Iterator[Family]:
        """All of them."""
        yield from self._gauges.values()
        yield from self._counters.values()


def measured(services: Services, workspaces: Sequence[str]) -> Iterator[Family]:
    """All that is to be told of these workspaces."""
    pools, happened, sent = PoolMetricFamilies(), CounterFamilies(), OutboxFamilies(services)
    for workspace in workspaces:
        for pool in services.metrics.list_pool_metrics(workspace):
            pools.add(workspace, pool)
        seen = services.metrics.get_workspace_metrics(workspace)
        happened.add(workspace, seen)
        sent.add(workspace, seen)
    for each in (pools, happened, sent):
        yield from each.families()
