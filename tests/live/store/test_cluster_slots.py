"""No script touches a key of another slot: with a line `#!lua` before them, servers since Redis 7 see to that.

(Without that line a cluster lets a script touch any key it did not declare, and the mistake shows only with a second shard.)
"""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from redis.exceptions import ResponseError

from app.domain.declaration import GroupDeclaration, PolicyDeclaration, PoolDeclaration, export_pool
from app.domain.declaration_diff import DeclarationStep
from app.domain.errors import NotFound
from app.domain.models import OpenRequests
from app.domain.plan_steps import EvictOverLimit, OverLimitVictim
from app.domain.request_filter import RequestFilter
from app.domain.specs import RequestSpec, WorkspaceSettings
from app.domain.tasks import ReplacedAllocationSpec, TaskDispatch, TaskSpec
from app.domain.tokens import Role, Token
from app.domain.workspace_limits import LimitedToken, WaitLimits
from app.planner.planning_pass import plan_pool
from app.service.audit import Audit
from app.store.audit import AuditStore
from app.store.availability import AvailabilityStore
from app.store.connection import RedisClient
from app.store.keys import key
from app.store.lua_linker import LuaCommand, load_commands
from app.store.metrics import MetricsStore
from app.store.nudges import Nudges
from app.store.queries import QueryStore
from app.store.queue_status import QueueStatusStore
from app.store.scripts import ScriptReply, Scripts
from app.store.snapshot_reader import SnapshotSizes
from app.store.task_outbox import TaskStore
from app.store.tokens import TokenStore
from app.store.usage_samples import UsageSampleStore
from app.store.workspace_copy import WorkspaceCopier
from app.store.workspace_reader import WorkspaceReader
from tests.support.audit_findings import findings
from tests.support.fake_redis import FakeRedisProvider
from tests.support.servers import Servers
from tests.support.world import World


def guarded(command: LuaCommand) -> LuaCommand:
    """Return the command with the `#!lua` line, which makes the server strict."""
    text = "#!lua\n" + command.text
    return replace(command, text=text, sha=hashlib.sha1(text.encode()).hexdigest())


class Guarded(Scripts):
    """Calls guarded commands, and notes which."""

    def __init__(self, client: RedisClient) -> None:
        super().__init__(client, {name: guarded(command) for name, command in load_commands().items()})
        self.called: set[str] = set()

    def call(self, command: str, workspace: str, /, **args: Any) -> ScriptReply:
        self.called.add(command)
        return super().call(command, workspace, **args)


@pytest.fixture(params=["cluster", "redis"])
def strict(request: pytest.FixtureRequest, servers: Servers) -> RedisClient:
    """Return a client of a cluster of one node, and of a plain server."""
    client = servers.client(request.param)
    if int(client.info("server")["redis_version"].split(".")[0]) < 7:
        pytest.skip("#!lua is known since Redis 7")
    return client


def live(world: World) -> None:
    """Run every command that writes."""
    world.pool(gpu=4, settings={"patience_s": 5})
    world.pool("q", tpu=1)
    world.group("g", reserved={"gpu": 2})
    world.policy("a", group="g", reserved={"gpu": 1}, limit={"gpu": 4})
    world.policy("b", priority=3)
    world.policy("a", "q")
    allocation, short = world.submit("a", gpu=2, lease_s=60, walltime_s=60, key="k"), world.submit("b", gpu=1, lease_s=8)
    waiting = [world.submit("a", gpu=4), world.submit("b", gpu=3, walltime_s=9), world.submit("b", gpu=2, queue_ttl_s=3)]
    world.get(waiting[0], poll=True)
    world.pass_time(9)
    world.ledger.heartbeat(world.workspace, allocation.id, 1)
    world.cancel(waiting[1])
    world.update_pool(gpu=5)
    world.update_pool("q", tpu=2)
    world.policy("b", limit={"gpu": 1})
    world.release(allocation)
    world.drop(waiting[0])
    assert world.status(allocation, short, *waiting) == ["released", "expired", "released", "cancelled", "expired"]
    world.ledger.update_workspace(world.workspace, WorkspaceSettings(unmanaged="allow"))
    world.release(world.submit("stranger", gpu=1))
    world.ledger.resume_unfinished(world.workspace)
    world.ledger.get_last_event_id(world.workspace)
    world.ledger.take_job_lock(world.workspace, "audit", "a", 60)
    world.ledger.release_job_lock(world.workspace, "audit", "a")
    live_with_taking_back(world)
    live_with_fair_shares(world)
    live_with_templates(world)
    live_with_tasks(world, TaskStore(world.client, world.clock))
    world.ledger.record_refused_poll(world.workspace, waiting[0].id, None)
    live_with_tokens(TokenStore(world.client, world.clock), world.workspace)
    live_with_availability(AvailabilityStore(world.client, world.clock), world)
    for component, pool in (("a", "p"), ("b", "p"), ("a", "q")):
        world.ledger.delete_policy(world.workspace, pool, f"orchestrator/{component}")
    world.ledger.delete_group(world.workspace, "p", "g")
    world.ledger.delete_pool(world.workspace, "q")
    empty = export_pool(world.get_pool())
    groups, policies = [GroupDeclaration(name="h")], [PolicyDeclaration(component="c")]
    full = PoolDeclaration(name="p", capacity={"gpu": 2}, groups=groups, policies=policies)
    for before, after in ((empty, full), (full, None), (None, full), (full, empty)):
        assert world.ledger.declare(world.workspace, [DeclarationStep(before, after)])


def live_with_taking_back(world: World) -> None:
    """Run every command of reclaim and preemption, in a pool of its own."""
    world.pool("back", gpu=4)
    world.group("g", "back")
    world.policy("low", "back", group="g")
    world.policy("high", "back", priority=1, reserved={"gpu": 1})
    victims = [world.submit("low", gpu=2, checkpoint="auto", walltime_s=9) for _ in range(2)]
    first, second = world.submit("high", gpu=2), world.submit("high", gpu=2)
    nudges = Nudges(world.client, world.clock)
    assert (nudges.claim_nudge(world.workspace), nudges.begin_reconcile(world.workspace, "a", 60)) == (0, "begun")
    nudges.finish_reconcile(world.workspace, "a", None, 60, 0.001, "nothing")
    for waiter, victim in zip((first, second), victims, strict=True):
        assert world.preempt(waiter, victim, pool="back").applied
    world.checkpoint(victims[0], "defer", 10)
    world.cancel(first)
    assert world.pass_on(victims[0], second, "back").applied
    assert world.end_hold(second, "back").reason == "enough"
    assert world.enforce_deadlines(700) == 2
    world.cancel(second)
    assert world.reprieve(victims[1], "back").applied
    world.checkpoint(victims[0], "completed")
    assert world.ledger.read_counters(world.workspace)["requeued|back"] == 1
    for victim in victims:
        world.drop(victim)
    assert world.status(*victims) == ["released", "released"]
    for component in ("low", "high"):
        world.ledger.delete_policy(world.workspace, "back", f"orchestrator/{component}")
    world.ledger.delete_pool(world.workspace, "back")


def live_with_fair_shares(world: World) -> None:
    """Publish shares, ask for them and evict, in a pool of its own with waiters of two shapes."""
    world.pool("fair", gpu=4, settings={"discipline": "fair_share", "patience_s": None, "grace_s": 0})
    for component in ("one", "two"):
        world.policy(component, "fair")
    allocations = [world.submit("one", gpu=2, retries=0) for _ in range(2)]
    waiting = [world.submit("two", gpu=gpu) for gpu in (1, 2)]
    snapshot = world.snapshot("fair")
    assert snapshot.demand["orchestrator/two"].units["gpu"] == 3
    publication = plan_pool(snapshot).publication
    assert publication
    assert world.plan_store.write_fair_shares(world.workspace, snapshot, publication).applied
    for each in waiting:
        world.cancel(each)
    world.update_pool("fair", gpu=2)
    assert world.apply_step(
        EvictOverLimit((OverLimitVictim(allocations[1].id, allocations[1].fence or 0, "pool"),)), world.snapshot("fair")
    ).applied
    world.drop(allocations[0])
    for component in ("one", "two"):
        world.ledger.delete_policy(world.workspace, "fair", f"orchestrator/{component}")
    world.ledger.delete_pool(world.workspace, "fair")


def live_with_templates(world: World) -> None:
    """Create, change and delete policies of a template, in a pool of its own."""
    world.pool("tenants", gpu=4, settings={"template_idle_s": 60})
    world.policy("user-*", "tenants", limit={"gpu": 1})
    held, waiter = world.submit("user-ana", gpu=1), world.submit("user-ana", gpu=1)
    world.policy("user-*", "tenants", limit={"gpu": 2})
    assert world.status(held, waiter) == ["allocated", "allocated"]
    for each in (held, waiter):
        world.drop(each)
    world.pass_time(200)
    world.release(world.submit("user-bob", gpu=1))
    world.ledger.delete_policy(world.workspace, "tenants", "orchestrator/user-*")
    world.ledger.delete_pool(world.workspace, "tenants")


def live_with_tasks(world: World, store: TaskStore) -> None:
    """Send tasks that begin, that do not, that are lost, retried, delayed and given up."""
    here = world.workspace
    world.pool("tasks", gpu=1)
    world.policy("tasks", "tasks")
    ask = TaskSpec(task="a", name="x", request=RequestSpec(component="tasks", resources={"gpu": 1}), message={})

    def sent(tries: int = 1) -> TaskDispatch:
        taken = [each for _ in range(2) for each in store.take_outbox(here, 1, 1, tries).dispatches]
        store.mark_dispatched(here, taken, 1)
        return taken[-1]

    def start_task(of: TaskDispatch) -> tuple[str, int]:
        store.start_task(here, of.request or "", of.fence or 0, "w")
        return of.request or "", of.fence or 0

    assert store.park_task(here, ask, "a-task") == store.park_task(here, ask, "a-task")
    store.park_task(here, ask.model_copy(update={"task": "b"}))
    assert store.cancel_task(here, "b").status == "ended"
    assert store.measure_outbox(here).waiting == 2
    store.mark_dispatch_failed(here, store.take_outbox(here, 1, 1, 1).dispatches, 1)
    world.clock.advance(1)
    sent()
    over = store.get_task(here, "b").request
    store.acknowledge_end(here, "b", over and over.id)
    world.clock.advance(1)
    assert world.ledger.release(here, *start_task(sent()), "lost").status == "expired"
    request, fence = start_task(sent())
    later = world.clock.now_ms() + 1000
    again = {
        "instead_of": ReplacedAllocationSpec(request=request, fence=fence),
        "not_before": datetime.fromtimestamp(later / 1000, UTC),
    }
    assert store.park_task(here, ask.model_copy(update=again)).status == "delayed"
    world.clock.advance(1)
    world.ledger.release(here, *start_task(sent()))
    with pytest.raises(NotFound):
        store.get_task(here, "a")
    world.ledger.delete_policy(here, "tasks", "orchestrator/tasks")
    world.ledger.delete_pool(here, "tasks")


def live_with_tokens(store: TokenStore, workspace: str) -> None:
    """Run every command of the service's own records, and the one that records the use of a token."""
    token = store.create_token("digest", Token(id="1", name="ci", role=Role.VIEWER, workspaces=("*",)), lasts_s=60)
    assert (store.find_token("digest"), store.list_tokens(), store.throttle_token("1", 1)) == (token, [token], 0)
    store.charge_token("1", 1, 2)
    assert store.count_waiters("1", workspace) == (0, 0)
    assert store.revoke_token("ci") == token


def live_with_availability(store: AvailabilityStore, world: World) -> None:
    """Run both commands of the API's availability record."""
    store.record(15)
    assert store.read_since_ms(15) == world.clock.now_ms()


def look_through(lists: QueryStore, world: World) -> None:
    """Run every command that lists."""
    requests, _ = lists.list_requests(world.workspace, RequestFilter(), None, 10)
    assert lists.get_requests(world.workspace, [request.id for request in requests]) == requests
    assert [event.id for event in lists.read_latest_events(world.workspace, 1)] == [
        world.ledger.get_last_event_id(world.workspace)
    ]
    assert lists.count_requests(world.workspace) == lists.count_matching_requests(world.workspace, RequestFilter(text=""))
    assert len(lists.read_queue_positions(world.workspace, [request.id for request in requests])) == len(requests)
    assert lists.list_active(world.workspace, "p", 0, 10) == ([], None)
    assert lists.read_deadlines(world.workspace) == OpenRequests()
    assert lists.list_component_pools(world.workspace, "orchestrator/absent") == []
    assert lists.get_workspace(world.workspace).settings.unmanaged == "allow"


def look_closely(client: RedisClient, world: World) -> None:
    """Run every command of explanations and dry runs."""
    standings, request = QueueStatusStore(client), world.submit("x/unmanaged")
    assert standings.list_statuses(world.workspace, request.id)[1] == ()
    assert standings.read_run_times(world.workspace, "p", ["orchestrator/t"]) == {}, "no policy is left there"
    assert standings.read_clock(world.workspace) > 1_700_000_000_000, "by Redis itself"
    with WorkspaceCopier(client, FakeRedisProvider()).copy(world.workspace) as scratch:
        assert World(scratch.client, world.workspace).status(request) == ["allocated"]
    world.drop(request)


def rebuild_queue(scripts: Guarded, world: World) -> None:
    """Run the commands of a workspace copy on the workspace itself; then repair a sum."""
    world.pool(gpu=1)
    world.policy()
    waiters = [world.submit(gpu=1).id for _ in range(3)][1:]
    rows = WorkspaceReader(scripts, world.clock).read(world.workspace, "", nullcontext)
    lanes = json.dumps(list(rows.lanes.items()))
    scripts.call("rebuild_queue", world.workspace, waiters=json.dumps(rows.waiters()), lanes=lanes)
    scripts.call("unsettle_pools", world.workspace, rechecked='["p"]')
    while world.ledger.resume_unfinished(world.workspace):
        pass
    assert world.queue() == waiters
    world.client.hincrby(key("pool", world.workspace, "p"), "used:gpu", 1)
    assert len(Audit(world.ledger, AuditStore(world.client, world.clock)).run(world.workspace, repair=True)) == 1


def test_no_script_touches_another_slot(strict: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = Guarded(strict)
    for place in (
        "ledger_calls", "audit", "tokens", "queries", "metrics", "plan_store", "nudges", "usage_samples", "task_outbox",
        "queue_status", "workspace_copy", "availability",
    ):  # fmt: skip
        monkeypatch.setattr(f"app.store.{place}.Scripts", lambda client: scripts if client is strict else Scripts(client))
    parts = SnapshotSizes(allocations=0, accounts=0, lanes=1, changes=1)
    monkeypatch.setattr("app.store.plan_store.SnapshotSizes", lambda: parts)  # so that a snapshot takes every script there is
    world = World(strict)
    live(world)
    assert (world.get_pool().used, world.queue(), len(world.events()) > 10) == ({}, [], True)
    samples = UsageSampleStore(strict, 60, 3, world.clock)
    assert (samples.sample_usage(world.workspace, "p"), len(samples.read_usage_history(world.workspace, "p"))) == (True, 1)
    measured = MetricsStore(strict, world.clock).get_pool(world.workspace, "p")
    assert (measured and measured.amounts["limit"]) == {"gpu": 5}
    look_through(QueryStore(strict), world)
    look_closely(strict, world)
    world.policy("limited", limit={"gpu": 1})
    token = LimitedToken("1", WaitLimits(5, 5))
    asks = [(f"limited-{number}", world.request_spec("limited", gpu=1), None) for number in range(2)]
    answers = world.ledger.submit_all(world.workspace, asks, token)
    assert "queued" in [getattr(answer, "status", "") for answer in answers]
    scripts.call("adopt", world.workspace, now=None, stored="")
    scripts.call("depose", world.workspace, now=None, id="", lasts_ms=1)
    rebuild_queue(scripts, World(strict, "rebuilt"))
    assert findings(world) == []
    assert scripts.called == load_commands().keys()


def test_the_guard_sees_a_key_of_another_slot(servers: Servers) -> None:
    client = servers.client("cluster")
    text = "#!lua\nreturn redis.call('SET', 'pk:{elsewhere}:meta', '1')"
    with pytest.raises(ResponseError, match="do not hash to the same slot"):
        client.eval(text, 1, "pk:{here}:")
    assert client.get("pk:{elsewhere}:meta") is None
