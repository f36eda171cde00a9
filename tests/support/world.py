"""A workspace to act in: builders with good defaults, time moved by hand, and everything there is as plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from app.domain.clock import ManualClock
from app.domain.ids import request_id
from app.domain.ledger_limits import LedgerLimits
from app.domain.models import Event, HeartbeatResult, Pool, Request
from app.domain.plan_steps import (
    BorrowedCondition,
    EndHold,
    PlanStep,
    Preempt,
    Publication,
    ReassignVictim,
    Reprieve,
    Trigger,
    Victim,
)
from app.domain.snapshot import PoolSnapshot
from app.domain.specs import GroupSpec, PolicySpec, PoolSpec, PoolUpdate, RequestSpec
from app.service.declarations import Declarations
from app.service.over_limit import OverLimitReader
from app.store.connection import RedisClient
from app.store.keys import key, prefix
from app.store.ledger import Ledger
from app.store.lua_linker import load_commands
from app.store.plan_store import PlanStore, StepResult
from app.store.queries import QueryStore
from app.store.scripts import ScriptReply, Scripts
from app.store.workspaces import WorkspaceRegistry


class World:
    """One workspace on one backend."""

    def __init__(self, client: RedisClient, workspace: str = "test", chunk: int = 200) -> None:
        self.client = client
        self.workspace = workspace
        self.clock = ManualClock()
        self.limits = LedgerLimits(chunk=chunk)
        self.ledger = Ledger(client, self.clock, self.limits)
        self.plan_store = PlanStore(client, self.clock, self.limits)

    @property
    def over_limit_reader(self) -> OverLimitReader:
        """Return the reader of use beyond limits."""
        return OverLimitReader(self.plan_store, self.ledger, QueryStore(self.client))

    @property
    def declarations(self) -> Declarations:
        """Return the service of declarations."""
        return Declarations(self.ledger, WorkspaceRegistry(self.client), self.over_limit_reader)

    def pool(self, name: str = "p", settings: dict[str, Any] | None = None, **capacity: int) -> None:
        """Make a pool: `pool("p", gpu=8)`."""
        self.ledger.create_pool(
            self.workspace, PoolSpec.model_validate({"name": name, "capacity": capacity, "settings": settings or {}})
        )

    def update_pool(self, name: str = "p", settings: dict[str, Any] | None = None, **capacity: int) -> None:
        """Merge into a pool's capacity and settings."""
        change = PoolUpdate.model_validate({"capacity": capacity, "settings": settings or {}})
        self.ledger.update_pool(self.workspace, name, change)

    def group(self, name: str, pool: str = "p", **numbers: Any) -> None:
        """Set a group."""
        self.ledger.set_group(self.workspace, pool, name, GroupSpec.model_validate(numbers))

    def policy(self, component: str = "t", pool: str = "p", **numbers: Any) -> None:
        """Set a policy of a component (`name`, or `type/name`)."""
        self.ledger.set_policy(self.workspace, pool, full_component(component), PolicySpec.model_validate(numbers))

    def request_spec(self, component: str = "t", **resources: Any) -> RequestSpec:
        """Return a spec; unknown fields are resources: `request_spec(gpu=2, preemptible=False)`."""
        kind, _, name = full_component(component).partition("/")
        fields = {key: resources.pop(key) for key in list(resources) if key in RequestSpec.model_fields}
        fields.setdefault("resources", resources)
        return RequestSpec.model_validate(
            {"component": name, "component_type": kind, "lease_s": None, "queue_ttl_s": None, **fields}
        )

    def submit(self, component: str = "t", key: str | None = None, own_id: str | None = None, **fields: Any) -> Request:
        """Submit an ask; without a word of it, nothing lapses and nothing goes stale."""
        return self.ledger.submit(self.workspace, self.request_spec(component, **fields), key, own_id)

    def submit_all(self, asks: Sequence[RequestSpec]) -> list[Any]:
        """Submit a batch."""
        return self.ledger.submit_all(self.workspace, [(request_id(), ask, None) for ask in asks])

    def get(self, request: Request | str, *, poll: bool = False) -> Request:
        """Return a request in its present state."""
        return self.ledger.get_request(self.workspace, request if isinstance(request, str) else request.id, poll=poll)

    def status(self, *requests: Request) -> list[str]:
        """Return the states of the requests."""
        return [str(self.get(request).status) for request in requests]

    def release(self, request: Request, fence: int | None = None, outcome: str = "succeeded") -> Request:
        """Give back, with the present fence unless another is given."""
        return self.ledger.release(self.workspace, request.id, self._fence(request, fence), outcome)

    def heartbeat(self, request: Request, fence: int | None = None) -> HeartbeatResult:
        """Prolong the lease, with the present fence unless another is given."""
        return self.ledger.heartbeat(self.workspace, request.id, self._fence(request, fence))

    def checkpoint(
        self,
        request: Request,
        state: str,
        seconds: int = 0,
        reference: str | None = None,
        fence: int | None = None,
        *,
        routine: bool = False,
    ) -> HeartbeatResult:
        """Say something of its checkpoint, with the present fence unless another is given."""
        own_fence = self._fence(request, fence)
        return self.ledger.checkpoint(self.workspace, request.id, own_fence, state, seconds, reference, routine=routine)

    def _fence(self, request: Request, fence: int | None) -> int:
        own_fence = self.get(request).fence if fence is None else fence
        assert own_fence is not None
        return own_fence

    def cancel(self, request: Request) -> Request:
        """Leave the queue."""
        return self.ledger.cancel(self.workspace, request.id)

    def drop(self, request: Request) -> Request:
        """End it whatever its state."""
        return self.ledger.drop(self.workspace, request.id)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and do what the housekeeping does."""
        self.clock.advance(seconds)
        self.ledger.clean_up(self.workspace)
        self.ledger.resume_all_unfinished(self.workspace)
        for name in self.pools():
            self.ledger.give_patience_hold(self.workspace, name)

    def counters(self, *names: str) -> dict[str, int]:
        """Return these counters of the metrics."""
        counts = self.ledger.read_counters(self.workspace).items()
        return {counter: count for counter, count in counts if counter.partition("|")[0] in names}

    # taking back

    def snapshot(self, pool: str = "p", *, even_if_idle: bool = False) -> PoolSnapshot:
        """Return a pool as the planner sees it; an idle one only with `even_if_idle`."""
        snapshot = self.plan_store.read_snapshot(self.workspace, pool, even_if_idle=even_if_idle)
        assert snapshot is not None
        return snapshot

    def settle(self) -> None:
        """Look at every pool, and check that nothing is left to do there."""
        for name in self.pools():
            snapshot = self.plan_store.read_snapshot(self.workspace, name, even_if_idle=True)
            assert snapshot is not None
            self.plan_store.write_fair_shares(self.workspace, snapshot, Publication((), is_watched=False))
        self.client.delete(key("nudge", self.workspace))

    def apply_step(self, step: PlanStep, snapshot: PoolSnapshot | None = None, pool: str = "p") -> StepResult:
        """Apply a step; without a snapshot, it is planned on the present one."""
        snapshot = snapshot or self.snapshot(pool)
        result = self.plan_store.apply_step(self.workspace, snapshot, step)
        while result.rest is not None:
            result = self.plan_store.apply_step(self.workspace, snapshot, result.rest)
        return result

    def preempt(
        self,
        waiter: Request,
        *victims: Request | Victim,
        reason: str = "priority",
        unused: Sequence[str] = (),
        within: Sequence[str] = (),
        borrowed: Sequence[BorrowedCondition] = (),
        snapshot: PoolSnapshot | None = None,
        pool: str = "p",
    ) -> StepResult:
        """Preempt for a waiter: requests as they hold now, or victims as they were planned."""
        victims_now = tuple(each if isinstance(each, Victim) else self.victim(each, reason) for each in victims)
        return self.apply_step(Preempt(waiter.id, victims_now, tuple(unused), tuple(within), tuple(borrowed)), snapshot, pool)

    def victim(self, request: Request, reason: str = "priority") -> Victim:
        """Return a victim under its present fence."""
        return Victim(request.id, self.get(request).fence or 0, Trigger(reason))

    def reprieve(self, request: Request, pool: str = "p") -> StepResult:
        """Reprieve a victim without a waiter."""
        return self.apply_step(Reprieve(request.id, self._fence(request, None)), pool=pool)

    def pass_on(self, request: Request, owner: Request, pool: str = "p") -> StepResult:
        """Reassign a victim without a waiter to the owner of another hold."""
        return self.apply_step(ReassignVictim(request.id, self._fence(request, None), owner.id), pool=pool)

    def end_hold(self, owner: Request, pool: str = "p") -> StepResult:
        """End a hold that cannot be filled."""
        return self.apply_step(EndHold(owner.id), pool=pool)

    def enforce_deadlines(self, after_s: float = 0) -> int:
        """Let time pass, and do what the housekeeping does about those whose time to leave is up; how many they were."""
        self.clock.advance(after_s)
        count, more = self.plan_store.enforce_deadlines(self.workspace)
        while more:
            while self.ledger.resume_unfinished(self.workspace):
                pass
            further, more = self.plan_store.enforce_deadlines(self.workspace)
            count += further
        return count

    def pools(self) -> list[str]:
        """Return the names of the pools."""
        return self.ledger.list_pools(self.workspace)

    def get_pool(self, name: str = "p") -> Pool:
        """Return a pool in its present state."""
        return self.ledger.get_pool(self.workspace, name)

    def used(self, name: str = "p") -> dict[str, int]:
        """Return the use of the keys that the pool lists."""
        pool = self.get_pool(name)
        return {key: pool.used.get(key, 0) for key in pool.capacity}

    def queue(self, name: str = "p") -> list[str]:
        """Return the ids in queue order."""
        ids, last = self.ledger.list_queue(self.workspace, name, count=1000)
        while last is not None:
            more, last = self.ledger.list_queue(self.workspace, name, last, count=1000)
            ids += more
        return ids

    def events(self) -> list[Event]:
        """Return every event, in order."""
        return self.ledger.read_events(self.workspace, count=100_000)

    def state(self) -> dict[str, Any]:
        """Return all data of the workspace in Redis, except the master's identity, which is a property of the server."""
        state = read_keys(self.client, f"{prefix(self.workspace)}*")
        meta = state.pop(key("meta", self.workspace), {})
        meta.pop("master", None)
        return dict(sorted((state | ({key("meta", self.workspace): meta} if meta else {})).items()))

    def call(self, command: str, /, **args: Any) -> ScriptReply:
        """Call a command as it is, once: no work it leaves is finished here."""
        frame = {"now": self.clock.now_ms(), "events_kept": self.limits.events_kept, "chunk": self.limits.chunk}
        declared = load_commands()[command].args
        values = {name: value for name, value in frame.items() if name in declared} | args
        return Scripts(self.client).call(command, self.workspace, **values)


def full_component(component: str) -> str:
    """Return the component with its type."""
    return component if "/" in component else f"orchestrator/{component}"


_READERS: dict[str, Callable[[Any, str], Any]] = {
    "hash": lambda client, key: client.hgetall(key),
    "zset": lambda client, key: client.zrange(key, 0, -1, withscores=True),
    "list": lambda client, key: client.lrange(key, 0, -1),
    "stream": lambda client, key: client.xrange(key),
    "set": lambda client, key: client.smembers(key),
    "string": lambda client, key: client.get(key),
}
"""Type of a key → the call that reads it."""


def read_key(client: RedisClient, key: str) -> Any:
    """Return what a key holds, whatever its type; None if there is no such key."""
    kind = str(client.type(key))
    return None if kind == "none" else _READERS[kind](client, key)


def read_keys(client: RedisClient, pattern: str) -> dict[str, Any]:
    """Return key → content for the keys that match a pattern, in order; on a cluster all of them must be in one slot."""
    contents: dict[str, Any] = {}
    for kind, read in _READERS.items():
        keys = list(client.scan_iter(pattern, 1000, kind))
        if keys:
            pipeline = client.pipeline(transaction=False)
            for key in keys:
                read(pipeline, key)
            contents.update(zip(keys, pipeline.execute(), strict=True))
    return dict(sorted(contents.items()))
