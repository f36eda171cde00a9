"""A workspace in which one size is large, and calls of every command in it, with pages of ten.

The pool has units of `cpu`, which are used up, and of `gpu`, which are plenty. So a request that asks cpu waits, and the
release of a small allocation hands over to the first waiter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from app.domain.declaration import GroupDeclaration, PolicyDeclaration, export_pool
from app.domain.declaration_diff import DeclarationStep
from app.domain.ledger_limits import MAX_VICTIM_HOLDS
from app.domain.models import Request
from app.domain.plan_steps import EvictOverLimit, OverLimitVictim
from app.domain.queue_score import BORROWING_STEP, MAX_AMOUNT
from app.domain.specs import RequestSpec, WorkspaceSettings
from app.domain.tasks import TaskDispatch, TaskSpec
from app.domain.tokens import Role, Token
from app.domain.workspace_limits import WORKSPACE_LIMITS, LimitedToken, WaitLimits
from app.service.audit import Audit
from app.store.audit import AuditStore
from app.store.availability import AvailabilityStore
from app.store.connection import RedisClient
from app.store.keys import key
from app.store.ledger import Ledger
from app.store.nudges import Nudges
from app.store.plan_store import PlanStore
from app.store.scripts import Scripts
from app.store.snapshot_reader import SnapshotSizes
from app.store.task_outbox import TaskStore
from app.store.tokens import TokenStore
from app.store.workspace_reader import WorkspaceReader
from tests.support.world import World

PAGE = 10
CPU, GPU, DISK, RESERVED = 10**6, 10**9, 10**6, 10**6
BATCH = 50
VICTIM_CPU = 20
NO_LIMITS = WorkspaceSettings.model_validate(
    dict.fromkeys(WORKSPACE_LIMITS) | {"component_limits": {"orchestrator/a": {"max_waiting": 10**9}}}
)
"""Nothing is refused, and the waiters of a component are counted for a limit of its own."""
READ_PAGES = ("READ_BATCH", "LIST_PAGE", "ACCOUNT_PAGE", "MAX_CHANGES")
"""The pages of a copy of a workspace, in `app.store.workspace_reader`."""


class BoundedWorld(World):
    """A workspace with a pool `p` whose cpu is used up, and the queue of a component `a`."""

    def __init__(self, client: RedisClient, settings: dict[str, Any]) -> None:
        super().__init__(client, chunk=PAGE)
        self.ledger = Ledger(client, self.clock, self.limits, pause=lambda _: None)
        self.plan_store = PlanStore(client, self.clock, self.limits, SnapshotSizes(*[PAGE] * len(SnapshotSizes._fields)))
        self.availability = AvailabilityStore(client, self.clock)
        self.ledger.update_workspace(self.workspace, NO_LIMITS)
        self.tasks, self.nudges = TaskStore(client, self.clock, self.limits), Nudges(client, self.clock)
        self.tokens = TokenStore(client, self.clock)
        self.pool(settings=settings, gpu=GPU, cpu=CPU, disk=DISK)
        self.group("g")
        self.policy("a", priority=1, reserved={"gpu": RESERVED})
        for component in ("b", "limited", "gone"):
            self.policy(component)
        self.policy("owner", priority=9)
        self.policy("tenant-*")
        self.handed_over = self.submit("b", cpu=100, lease_s=3600)
        self.victims = [self.submit("b", cpu=VICTIM_CPU, checkpoint="auto") for _ in range(3)]
        self.over_limit = [self.submit("limited", gpu=2) for _ in range(2)]
        self.holder = self.submit("b", cpu=CPU - 100 - 3 * VICTIM_CPU - 10)
        self.waiting = [self.submit("a", cpu=100) for _ in range(5)]
        self.large_waiter: Request | None = None
        self.small_allocations: list[Request] = []
        """A waiter for which many allocations have to leave, if the size makes one, and these."""

    def submit_many(self, specs: list[RequestSpec]) -> list[Request]:
        """Submit in batches, and check that all are accepted."""
        answers: list[Any] = []
        for first in range(0, len(specs), BATCH):
            answers += self.submit_all(specs[first : first + BATCH])
        assert all(isinstance(answer, Request) for answer in answers)
        return answers

    def resume_all(self) -> None:
        """Resume all unfinished work."""
        self.ledger.resume_all_unfinished(self.workspace)

    def snapshot_rules(self) -> str:
        """Return the version of the rules that a step of a plan has to name."""
        return self.snapshot(even_if_idle=True).rules_version


class AuditOfFewLanes(AuditStore):
    """An audit that compares the waiters of the first lanes only: its calls are those of a whole audit, but fewer."""

    def _list_lanes(self, workspace: str, pool: str) -> Iterator[str]:
        return islice(super()._list_lanes(workspace, pool), 2 * PAGE)


def call_every_command(world: BoundedWorld) -> None:
    """Call every command at least once; those that change most come last."""
    _read(world)
    _read_as_a_service(world)
    _read_parts(world)
    _audit(world)
    _change_requests(world)
    _change_tasks(world)
    _change_tokens(world)
    _run_jobs(world)
    _preempt(world)
    _change_templates(world)
    _change_pools(world)
    _hand_over(world)


def _read(world: BoundedWorld) -> None:
    waiter = world.waiting[2].id
    ids = json.dumps([request.id for request in world.waiting])
    assert world.call("get_request", id=waiter, poll=True).tag == "found"
    assert world.call("explain", id=waiter).tag == "found"
    assert world.call("get_requests", ids=ids).fields["requests"]
    assert world.call("list_requests", before=MAX_AMOUNT, count=PAGE, scan=PAGE, filter="{}").fields["found"]
    search = json.dumps({"text": "a", "status": {"queued": True}})
    assert world.call("list_requests", before=MAX_AMOUNT, count=PAGE, scan=PAGE, filter=search).tag == "page"
    assert world.call("count_matching_requests", before=MAX_AMOUNT, scan=PAGE, filter=search).tag == "counted"
    assert world.call("count_requests").tag == "counted"
    assert world.call("read_queue_positions", ids=ids).fields["positions"]
    assert world.call("list_active", pool="p", after=0, count=PAGE).fields["found"]
    first = world.call("list_queue", pool="p", after=-BORROWING_STEP - 1, count=PAGE).fields
    world.call("list_queue", pool="p", after=first["queue_scores"][-1], count=PAGE)
    assert world.call("get_pool", name="p", kind="groups", cursor="0", count=PAGE).tag == "found"
    assert world.call("list_pools").fields["pools"]
    assert world.call("list_component_pools", component="orchestrator/a").fields["pools"]
    assert world.call("get_workspace").tag
    assert world.call("read_events", after="0", count=PAGE).fields["entries"]
    assert world.call("read_latest_events", last="+", count=PAGE).fields["entries"]
    assert world.call("get_last_event_id").fields["id"] != "0-0"


def _read_as_a_service(world: BoundedWorld) -> None:
    world.call("read_clock")
    assert world.call("read_counters").fields["submitted"]
    assert world.call("read_deadlines").tag == "found"
    assert world.call("read_pool_metrics", pool="p", cursor="0", components="[]", count=PAGE).tag == "measured"
    world.call("read_run_times", pool="p", components=json.dumps(["orchestrator/a"]))
    samples = {"apart_ms": 0, "most": PAGE, "listed": PAGE}
    assert world.call("sample_usage", pool="p", **samples).tag == "sampled"
    assert world.call("read_usage_history", pool="p", cursor="0", count=PAGE).fields["samples"]
    world.availability.record(1)
    assert world.availability.read_since_ms(1)
    assert world.call("adopt", stored="").tag == "changed"
    assert world.call("depose", id="0" * 40, lasts_ms=1).tag == "other"


def _read_parts(world: BoundedWorld) -> None:
    """Read a snapshot and a copy of the workspace, in parts of ten, and each part that they may leave out."""
    last = world.ledger.get_last_event_id(world.workspace)
    assert world.snapshot(even_if_idle=True).waiters
    changed = {"event": last, "number": 0, "most": PAGE}
    assert world.call("read_allocations", pool="p", after="-inf", count=PAGE).fields["allocations"]
    assert world.call("read_changes", pool="p", **changed).tag == "read"
    assert world.call("read_demand", pool="p", after=0, count=PAGE).tag == "read"
    lanes = world.call("list_lanes", component="orchestrator/a", cursor="0", count=PAGE).fields["lanes"]
    page = {"lanes": json.dumps(lanes[:PAGE]), "lane_count": PAGE, "most": PAGE}
    assert world.call("read_waiters", pool="p", **page).fields["waiters"]
    rows = WorkspaceReader(Scripts(world.client), world.clock).read(world.workspace, "", nullcontext)
    batch = rows.waiters()[:PAGE]
    lanes_of_batch = {lane: rows.lanes[lane] for _, lane, _ in batch}
    world.call("rebuild_queue", waiters=json.dumps(batch), lanes=json.dumps(list(lanes_of_batch.items())))
    world.call("unsettle_pools", rechecked=json.dumps(["p"]))
    world.resume_all()


def _audit(world: BoundedWorld) -> None:
    """Run the whole audit with a repair, in parts of ten, after damage to a sum and a lane."""
    pool = key("pool", world.workspace, "p")
    world.client.hincrby(pool, "patience_held:cpu", 1)
    store = AuditOfFewLanes(world.client, world.clock, PAGE)
    found = Audit(world.ledger, store).run(world.workspace, repair=True)
    assert [(each.kind, each.actual, each.expected) for each in found] == [("account", "1", "0")], found
    damaged_lane = str(world.client.zrange(key("pool_lanes", world.workspace, "p"), 0, 0)[0])
    world.client.zadd(key("pool_lanes", world.workspace, "p"), {damaged_lane: 1})
    found = [*store.check_lanes(world.workspace, "p", repair=True)]
    assert [(each.kind, each.actual) for each in found] == [("lane", "1")], found
    world.resume_all()


def _change_requests(world: BoundedWorld) -> None:
    """Submit beside the queue and into it, and cancel; a large grant makes lanes cross from share to borrowing."""
    small = world.submit("b", cpu=1, lease_s=60)
    target = {"id": small.id, "fence": small.fence}
    assert world.call("start", runner="r", **target).tag == "alive"
    assert world.call("heartbeat", **target).tag == "alive"
    report = {"state": "completed", "seconds": 0, "reference": "", "routine": True}
    assert world.call("checkpoint", op="checkpoint", **target, **report).tag == "alive"
    world.call("release", allocations=json.dumps([(small.id, str(small.fence), "succeeded")]))
    queued = world.submit("a", cpu=5_000, queue_ttl_s=60)
    assert world.call("record_refused_poll", id=queued.id, components="").tag == "recorded"
    assert world.call("cancel", id=queued.id).tag == "cancelled"
    assert world.call("drop", id=world.waiting.pop().id).tag == "dropped"
    explained = world.ledger.submit_explained(world.workspace, world.request_spec("a", cpu=100))
    assert explained.request.position
    share = world.submit("a", gpu=RESERVED - 20)
    assert share.fence
    world.call("release", allocations=json.dumps([(share.id, str(share.fence), "succeeded")]))
    world.resume_all()


def _task(world: BoundedWorld, name: str, component: str, **numbers: Any) -> TaskSpec:
    later = numbers.pop("not_before", None)
    return TaskSpec(task=name, name="work", request=world.request_spec(component, **numbers), message={}, not_before=later)


def _take_outbox(world: BoundedWorld) -> list[TaskDispatch]:
    return list(world.tasks.take_outbox(world.workspace, 1, 1, 3, count=PAGE).dispatches)


def _change_tasks(world: BoundedWorld) -> None:
    here, store = world.workspace, world.tasks
    later = datetime.fromtimestamp(world.clock.now_ms() / 1000 + 3600, UTC)
    store.park_task(here, _task(world, "granted", "b", gpu=1))
    store.park_task(here, _task(world, "cancelled", "a", cpu=100))
    store.park_task(here, _task(world, "later", "a", cpu=100, not_before=later))
    store.get_task(here, "granted")
    store.measure_outbox(here)
    for task in ("cancelled", "later"):
        store.cancel_task(here, task)
    request = store.get_task(here, "granted").request
    assert request
    store.mark_dispatch_failed(here, _take_outbox(world), 0)
    world.clock.advance(2)
    store.mark_dispatched(here, _take_outbox(world), 10)
    assert world.call("start", id=request.id, fence=request.fence, runner="r").tag == "alive"
    store.acknowledge_end(here, "later")


def _change_tokens(world: BoundedWorld) -> None:
    token = Token(id="1", name="ci", role=Role.VIEWER, workspaces=("*",))
    world.tokens.create_token("digest", token, lasts_s=60)
    assert world.tokens.find_token("digest")
    world.tokens.list_tokens()
    world.tokens.count_waiters("1", world.workspace)
    world.tokens.throttle_token("1", 10)
    world.tokens.charge_token("1", 10, 2)
    world.tokens.revoke_token("ci")


def _run_jobs(world: BoundedWorld) -> None:
    here = world.workspace
    world.nudges.claim_nudge(here)
    assert world.nudges.begin_reconcile(here, "t", 60) == "begun"
    world.nudges.finish_reconcile(here, "t", None, 60, 0.001, "nothing")
    assert world.ledger.take_job_lock(here, "audit", "t", 60)
    world.ledger.release_job_lock(here, "audit", "t")
    world.clock.advance(90)
    assert world.call("clean_up", retention_s=60, available_since_ms=None, expected=None).tag == "cleaned"
    world.resume_all()
    rules = world.snapshot_rules()
    assert world.call("write_fair_shares", pool="p", rows="[]", watched="1", rules=rules).tag == "published"
    world.call("give_patience_hold", pool="p", first=0, best="", count=10)


def _preempt(world: BoundedWorld) -> None:
    """Create holds of victims that are reassigned, ended, reprieved or forced out, and a patience hold."""
    if world.large_waiter:
        assert world.preempt(world.large_waiter, *world.small_allocations).applied
        world.cancel(world.large_waiter)
        world.resume_all()
        assert all(world.reprieve(victim).applied for victim in world.small_allocations)
    owners = [world.submit("owner", cpu=VICTIM_CPU) for _ in world.victims]
    for owner, victim in zip(owners, world.victims, strict=True):
        result = world.preempt(owner, victim)
        assert result.applied, result.reason
    assert world.checkpoint(world.victims[0], "defer", 10).directive == "checkpoint"
    world.cancel(owners[0])
    assert world.pass_on(world.victims[0], owners[1]).applied
    assert world.end_hold(owners[2]).reason == "enough"
    world.cancel(owners[2])
    assert world.reprieve(world.victims[2]).applied
    for _ in range(2):
        world.clock.advance(700)
        assert world.call("enforce_deadlines").tag == "enforced"
        world.resume_all()
    assert world.call("give_patience_hold", pool="p", first=0, best="", count=10).tag == "given"
    waiter = world.waiting[-1].id
    assert world.call("explain", id=waiter).tag == "found"
    assert world.call("get_request", id=waiter, poll=True).tag == "found"
    assert world.snapshot(even_if_idle=True).waiters
    world.submit("b", cpu=1)
    world.policy("limited", limit={"gpu": 2})
    over_limit = world.over_limit[1]
    evicted = OverLimitVictim(over_limit.id, over_limit.fence or 0, "policy:orchestrator/limited")
    assert world.apply_step(EvictOverLimit((evicted,)), world.snapshot(even_if_idle=True)).applied


def _change_templates(world: BoundedWorld) -> None:
    """Make policies by a template, change them with it, delete idle ones, and the template."""
    for number in range(2 * PAGE):
        world.release(world.submit(f"tenant-{number}", gpu=1))
    world.policy("tenant-*", limit={"gpu": GPU}, weight=2)
    world.resume_all()
    world.clock.advance(3600)
    clean_up = {"retention_s": 10**6, "available_since_ms": None, "expected": None}
    assert any(int(world.call("clean_up", **clean_up).fields["idle_policies"]) for _ in range(100))
    world.release(world.submit("tenant-0", gpu=1))
    page = {"pool": "p", "template": "orchestrator/tenant-*", "count": PAGE}
    assert world.call("delete_idle_policies", **page).tag == "deleted"
    world.ledger.delete_policy(world.workspace, "p", "orchestrator/tenant-*")


def _change_pools(world: BoundedWorld) -> None:
    here, ledger = world.workspace, world.ledger
    world.policy("a", priority=1, reserved={"gpu": RESERVED // 2})
    world.group("g", limit={"gpu": GPU})
    ledger.delete_group(here, "p", "g")
    ledger.delete_policy(here, "p", "orchestrator/gone")
    world.update_pool(cpu=CPU - 1)
    world.update_pool(settings={"patience_s": 100_000, "queueing": "strict"})
    assert world.call("explain", id=world.waiting[-1].id).tag == "found"
    assert world.snapshot(even_if_idle=True).waiters
    world.submit("a", cpu=100)
    world.update_pool(settings={"queueing": "best_effort"})
    ledger.update_workspace(here, NO_LIMITS.model_copy(update={"unmanaged": "reject"}))
    world.pool("new", tpu=1)
    world.policy("a", "new")
    ledger.delete_pool(here, "new")
    before = export_pool(world.get_pool())
    assert ledger.declare(here, [DeclarationStep(before, before.model_copy(update={"description": "changed"}))])


def _hand_over(world: BoundedWorld) -> None:
    """Release units for the first waiter, and then nearly the whole pool: the grants of one call are bounded."""
    for allocation in (world.handed_over, world.holder):
        rows = json.dumps([(allocation.id, str(allocation.fence), "succeeded")])
        assert world.call("release", allocations=rows).tag == "released"
        assert world.call("resume_unfinished").tag == "advanced"


# Each makes one size large.


def queue_shapes(world: BoundedWorld, count: int) -> None:
    """Queue requests of which no two ask as much of the key that is used up."""
    world.submit_many([world.request_spec("a", cpu=101 + number) for number in range(count)])


def queue_shapes_of_free_units(world: BoundedWorld, count: int) -> None:
    """Queue requests of which no two ask as much of a key that is not used up; some are within a reserved share."""
    world.submit_many([world.request_spec("a", gpu=1 + number, cpu=100) for number in range(count)])


def queue_shapes_of_two_keys(world: BoundedWorld, count: int) -> None:
    """Queue requests of which each asks more of one key and less of the other than the one before."""
    world.submit_many([world.request_spec("a", gpu=count - number, cpu=101 + number) for number in range(count)])


def queue_one_shape(world: BoundedWorld, count: int) -> None:
    """Queue requests that all ask the same."""
    world.submit_many([world.request_spec("a", cpu=100)] * count)


def queue_for_each_policy(world: BoundedWorld, count: int) -> None:
    """Make policies, and queue one request for each."""
    add_policies(world, count)
    world.submit_many([world.request_spec(f"t{number}", cpu=100) for number in range(count)])


def make_policies_by_template(world: BoundedWorld, count: int) -> None:
    """Let a template make policies, each with an allocation."""
    world.policy("user-*", settings={"template_max": 100_000})
    world.submit_many([world.request_spec(f"user-{number}", gpu=1) for number in range(count)])


def add_policies(world: BoundedWorld, count: int) -> None:
    """Make policies without requests."""
    declare(world, [PolicyDeclaration(component=f"t{number}") for number in range(count)], [])


def add_groups(world: BoundedWorld, count: int) -> None:
    """Make groups."""
    declare(world, [], [GroupDeclaration(name=f"g{number}") for number in range(count)])


def declare(world: BoundedWorld, policies: list[PolicyDeclaration], groups: list[GroupDeclaration]) -> None:
    """Add policies and groups to the pool."""
    before = export_pool(world.get_pool())
    after = before.model_copy(update={"policies": [*before.policies, *policies], "groups": [*before.groups, *groups]})
    assert world.ledger.declare(world.workspace, [DeclarationStep(before, after)])


def add_pools(world: BoundedWorld, count: int) -> None:
    """Make pools in which the component of the queue has a policy."""
    for number in range(count):
        world.pool(f"other{number}", tpu=1)
        world.policy("a", f"other{number}")


def run_allocations(world: BoundedWorld, count: int) -> None:
    """Run allocations that promise when they end."""
    world.submit_many([world.request_spec("b", gpu=1, walltime_s=100_000, checkpoint="auto") for _ in range(count)])


def let_deadlines_pass(world: BoundedWorld, count: int) -> None:
    """Make leases and waiters whose time is up."""
    world.submit_many([world.request_spec("b", gpu=1, lease_s=30) for _ in range(count)])
    world.submit_many([world.request_spec("a", cpu=100, queue_ttl_s=30) for _ in range(count)])


def end_requests(world: BoundedWorld, count: int) -> None:
    """Make requests that have ended."""
    for request in world.submit_many([world.request_spec("b", gpu=1) for _ in range(count)]):
        world.release(request, request.fence)


def park_tasks(world: BoundedWorld, count: int) -> None:
    """Make tasks that wait, and tasks in the outbox."""
    for number in range(count):
        world.tasks.park_task(world.workspace, _task(world, f"waiting{number}", "a", cpu=100))
        world.tasks.park_task(world.workspace, _task(world, f"sent{number}", "b", gpu=1))


def create_tokens(world: BoundedWorld, count: int) -> None:
    """Make tokens."""
    for number in range(count):
        token = Token(id=f"t{number}", name=f"n{number}", role=Role.VIEWER, workspaces=("*",))
        world.tokens.create_token(f"digest{number}", token)


def hold_for_waiters(world: BoundedWorld, count: int) -> None:
    """Queue waiters, each with an allocation that it may preempt. As many preempt as may have a hold; then three cancel."""
    world.submit("b", disk=DISK - 2 * count)
    victims = world.submit_many([world.request_spec("b", disk=2, checkpoint="auto") for _ in range(count)])
    owners = world.submit_many([world.request_spec("owner", disk=2)] * count)
    results = [world.preempt(owner, victim) for victim, owner in zip(victims, owners, strict=True)]
    assert [result.reason for result in results] == [""] * MAX_VICTIM_HOLDS + ["many holds"] * (count - MAX_VICTIM_HOLDS)
    for victim, owner in zip(victims[:3], owners[:3], strict=True):
        world.cancel(owner)
        assert world.reprieve(victim).applied


def park_delayed_tasks(world: BoundedWorld, count: int) -> None:
    """Park tasks whose time has not come."""
    later = datetime.fromtimestamp(world.clock.now_ms() / 1000 + 7200, UTC)
    for number in range(count):
        world.tasks.park_task(world.workspace, _task(world, f"delayed{number}", "a", cpu=101 + number, not_before=later))


def run_without_policy(world: BoundedWorld, count: int) -> None:
    """Run allocations of components that have no policy, each of its own."""
    world.ledger.update_workspace(world.workspace, NO_LIMITS.model_copy(update={"unmanaged": "allow"}))
    world.submit_many([world.request_spec(f"free{number}", gpu=1) for number in range(count)])


def queue_for_many_victims(world: BoundedWorld, count: int) -> None:
    """Queue a waiter that asks for the units of many allocations."""
    world.submit("b", disk=DISK - count)
    world.small_allocations = world.submit_many([world.request_spec("b", disk=1, checkpoint="auto") for _ in range(count)])
    world.large_waiter = world.submit("owner", disk=count)


def limit_components(world: BoundedWorld, count: int) -> None:
    """Set limits of components."""
    limits = {f"orchestrator/c{number}": {"max_waiting": 1} for number in range(count)}
    world.ledger.update_workspace(world.workspace, WorkspaceSettings.model_validate({"component_limits": limits}))


def wait_with_limited_tokens(world: BoundedWorld, count: int) -> None:
    """Queue a waiter of each of many tokens that have limits of their own."""
    for number in range(count):
        token = LimitedToken(f"token{number}", WaitLimits(max_waiting=2))
        world.ledger.submit(world.workspace, world.request_spec("a", cpu=100), token=token)
