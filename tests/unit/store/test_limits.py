"""Limits of a workspace, a token and a component: what is refused, what never is, and what the audit repairs."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from app.domain.errors import LimitReached, Refusal, RuleViolation
from app.domain.models import Request
from app.domain.specs import RequestSpec, WorkspaceSettings
from app.domain.tasks import TaskSpec
from app.domain.workspace_limits import LimitedToken, WaitLimits
from app.domain.workspaces import LimitUse
from app.service.audit import Audit
from app.store.audit import AuditStore
from app.store.keys import key
from app.store.queries import QueryStore
from app.store.task_outbox import TaskStore
from tests.support.world import World

TOKEN = LimitedToken("ci", WaitLimits(max_waiting=2, max_shapes=1))
HOUR_S = 3600


@pytest.fixture
def world(world: World) -> World:
    """Create a pool with one GPU."""
    world.pool(gpu=1)
    world.policy(limit={"gpu": 1})
    return world


def limit(world: World, **settings: Any) -> None:
    world.ledger.update_workspace(world.workspace, WorkspaceSettings.model_validate(settings))


def use(world: World) -> dict[str, int]:
    workspace = QueryStore(world.client).get_workspace(world.workspace)
    return {name: use.present for name, use in workspace.use.items()}


def refusal(act: Callable[[], object]) -> tuple[str, str, str, int, int]:
    with pytest.raises(LimitReached) as refused:
        act()
    error = refused.value
    return error.code, error.subject, error.name, error.limit, error.present


def submit(world: World, token: LimitedToken | None = None, **resources: Any) -> Request:
    return world.ledger.submit(world.workspace, world.request_spec(**resources), token=token)


def stored(world: World) -> dict[str, Any]:
    return world.state()


def repair(world: World) -> list[str]:
    """Return what an audit finds and repairs; a second one finds nothing."""
    audit = Audit(world.ledger, AuditStore(world.client, world.clock))
    findings = [str(finding) for finding in audit.run(world.workspace, repair=True)]
    assert audit.run(world.workspace) == []
    return findings


# the workspace


def test_one_waiter_too_many_is_refused_and_changes_nothing(world: World) -> None:
    limit(world, max_waiting=1)
    world.submit(gpu=1)
    world.submit(gpu=1)
    before = stored(world)
    assert refusal(lambda: world.submit(gpu=1)) == ("too_many_waiting", "workspace", "max_waiting", 1, 1)
    assert stored(world) == before


def test_what_is_granted_at_once_does_not_wait(world: World) -> None:
    limit(world, max_waiting=0)
    assert world.status(world.submit(gpu=1)) == ["allocated"]


def test_a_repeated_call_is_not_refused(world: World) -> None:
    limit(world, max_waiting=1, max_running=1)
    first = world.submit(gpu=1, key="k")
    assert refusal(lambda: world.submit(gpu=1, key="other"))[0] == "too_many_running"
    assert world.submit(gpu=1, key="k").id == first.id
    assert world.submit(gpu=1, own_id=first.id).id == first.id


def test_null_is_no_limit(world: World) -> None:
    limit(world, max_waiting=1)
    limit(world, max_waiting=None)
    world.submit(gpu=1)
    assert world.status(world.submit(gpu=1), world.submit(gpu=1)) == ["queued", "queued"]
    assert QueryStore(world.client).get_workspace(world.workspace).use["max_waiting"] == LimitUse(2, None)


def test_a_shape_too_many_is_refused_but_not_another_waiter_of_the_same(world: World) -> None:
    limit(world, max_shapes=1)
    world.submit(gpu=1)
    waits = world.submit(gpu=1)
    world.submit(gpu=1)
    world.policy(limit={"gpu": 1}, reserved={"gpu": 1})
    assert refusal(lambda: world.submit(gpu=1, preemptible=False)) == ("too_many_shapes", "workspace", "max_shapes", 1, 1)
    assert use(world)["max_shapes"] == 1
    world.cancel(waits)
    assert use(world)["max_shapes"] == 1


def test_a_shape_that_waits_no_longer_does_not_count(world: World) -> None:
    limit(world, max_shapes=1)
    world.submit(gpu=1)
    world.cancel(world.submit(gpu=1))
    assert use(world)["max_shapes"] == 0


def test_no_new_request_beyond_max_running_but_waiters_are_granted(world: World) -> None:
    running = world.submit(gpu=1)
    waits = world.submit(gpu=1)
    limit(world, max_running=1)
    assert refusal(lambda: world.submit(gpu=1)) == ("too_many_running", "workspace", "max_running", 1, 1)
    world.release(running)
    assert world.status(waits) == ["allocated"]


def test_a_preempted_request_is_queued_whatever_the_limits(world: World) -> None:
    world.policy("high", priority=9, reserved={"gpu": 1})
    victim = submit(world, TOKEN, gpu=1)
    owner = world.submit("high", gpu=1)
    limit(
        world, max_waiting=0, max_shapes=0, max_running=0, max_bytes=0, component_limits={"orchestrator/t": {"max_waiting": 0}}
    )
    world.preempt(owner, victim)
    world.release(victim, outcome="vacated")
    assert world.status(victim, owner) == ["queued", "allocated"]
    assert world.client.zcard(key("limited_waiting", world.workspace, "token/ci")) == 1
    world.cancel(victim)
    assert world.client.keys("*limited*") == []


def test_a_batch_answers_the_limit_in_place_of_the_ask(world: World) -> None:
    limit(world, max_waiting=1)
    answers = world.submit_all([world.request_spec(gpu=1) for _ in range(4)])
    assert [getattr(answer, "status", None) or answer.code for answer in answers] == [
        "allocated", "queued", "too_many_waiting", "too_many_waiting",
    ]  # fmt: skip
    assert isinstance(answers[2], Refusal)


def test_bodies_are_counted_until_they_are_deleted(world: World) -> None:
    first = world.submit(gpu=1, labels={"note": "x" * 100})
    size = use(world)["max_bytes"]
    assert 100 < size < 400
    limit(world, max_bytes=size + 10)
    assert refusal(lambda: world.submit(gpu=1)) == ("too_many_bytes", "workspace", "max_bytes", size + 10, size)
    world.release(first)
    assert use(world)["max_bytes"] == size
    world.clock.advance(world.limits.retention_s + 1)
    world.ledger.clean_up(world.workspace)
    assert use(world)["max_bytes"] == 0
    assert world.status(world.submit(gpu=1)) == ["allocated"]


def test_rejected_requests_are_kept_for_an_hour(world: World) -> None:
    rejected, released = world.submit(gpu=2), world.submit(gpu=1)
    world.release(released)
    world.clock.advance(HOUR_S - 1)
    assert world.ledger.clean_up(world.workspace).pruned_requests == 0
    world.clock.advance(1)
    assert world.ledger.clean_up(world.workspace).pruned_requests == 1
    assert world.status(released) == ["released"]
    assert rejected.id not in world.client.zrange(key("requests", world.workspace), 0, -1)


def test_beyond_max_ended_the_oldest_are_deleted_in_parts(client: Any) -> None:
    world = World(client, chunk=2)
    world.pool(gpu=1)
    world.policy()
    ended = [world.submit(gpu=1) for _ in range(6)]
    for number, request in enumerate(ended):
        world.clock.advance(1)
        world.release(request) if number == 0 else world.ledger.drop(world.workspace, request.id)
    limit(world, max_ended=1)
    assert world.ledger.clean_up(world.workspace).pruned_requests == 2
    assert world.ledger.clean_up(world.workspace).pruned_requests == 2
    assert world.ledger.clean_up(world.workspace).pruned_requests == 1
    assert [*world.client.zrange(key("ended", world.workspace), 0, -1)] == [ended[-1].id]


def test_pools_and_policies_have_limits(world: World) -> None:
    limit(world, max_pools=1, max_policies=1)
    assert refusal(lambda: world.pool("q", gpu=1)) == ("too_many_pools", "workspace", "max_pools", 1, 1)
    assert refusal(lambda: world.policy("new")) == ("too_many_policies", "workspace", "max_policies", 1, 1)
    world.policy(priority=3)  # a policy that exists may be replaced
    assert (use(world)["max_pools"], use(world)["max_policies"]) == (1, 1)
    world.ledger.delete_policy(world.workspace, "p", "orchestrator/t")
    world.policy("new")
    assert use(world)["max_policies"] == 1


# tokens and components


def test_a_token_has_limits_of_its_own(world: World) -> None:
    world.policy("other")
    world.submit(gpu=1)
    waiters = [submit(world, TOKEN, gpu=1) for _ in range(2)]
    assert refusal(lambda: submit(world, TOKEN, gpu=1)) == ("too_many_waiting", "token/ci", "max_waiting", 2, 2)
    assert world.status(submit(world, LimitedToken("x", WaitLimits(max_waiting=1)), gpu=1)) == ["queued"]
    world.cancel(waiters[0])

    def second_shape() -> Request:
        return world.ledger.submit(world.workspace, world.request_spec("other", gpu=1), token=TOKEN)

    assert refusal(second_shape) == ("too_many_shapes", "token/ci", "max_shapes", 1, 1)
    world.cancel(waiters[1])
    assert second_shape().status == "queued"


def test_a_component_has_limits_of_its_own(world: World) -> None:
    limit(world, component_limits={"orchestrator/t": {"max_waiting": 1}})
    world.policy("other")
    world.submit(gpu=1)
    waits = world.submit(gpu=1)
    assert refusal(lambda: world.submit(gpu=1)) == ("too_many_waiting", "component/orchestrator/t", "max_waiting", 1, 1)
    assert world.status(world.submit("other", gpu=1)) == ["queued"]
    workspace = QueryStore(world.client).get_workspace(world.workspace)
    assert workspace.component_use == {"orchestrator/t": {"max_waiting": LimitUse(1, 1), "max_shapes": LimitUse(1, None)}}
    limit(world, component_limits={"orchestrator/t": None})
    assert world.status(world.submit(gpu=1)) == ["queued"]
    world.cancel(waits)
    assert world.client.keys("*limited*") == []


def test_without_limits_of_its_own_nothing_is_counted_for_a_token(world: World) -> None:
    world.submit(gpu=1)
    submit(world, LimitedToken("ci", WaitLimits()), gpu=1)
    assert world.client.keys("*limited*") == []


@pytest.mark.parametrize("end", ["cancel", "drop", "grant", "expire", "reject"])
def test_a_waiter_that_leaves_is_counted_no_longer(world: World, end: str) -> None:
    running = world.submit(gpu=1)
    spec = world.request_spec(gpu=1, queue_ttl_s=1)
    waits = world.ledger.submit(world.workspace, spec, token=TOKEN)
    if end == "reject":
        world.policy(limit={"gpu": 0})
    elif end == "grant":
        world.release(running)
    elif end == "expire":
        world.clock.advance(2)
        world.ledger.clean_up(world.workspace)
    else:
        getattr(world.ledger, end)(world.workspace, waits.id)
    assert world.get(waits).status != "queued"
    assert world.client.keys("*limited*") == []


def test_too_many_components_with_limits(world: World) -> None:
    limit(world, component_limits={f"x/c{number}": {"max_waiting": 1} for number in range(1000)})
    with pytest.raises(RuleViolation, match="1001 components would have limits of their own; 1000 may"):
        limit(world, component_limits={"x/one": {"max_shapes": 1}})
    limit(world, component_limits={"x/c1": None, "x/one": {"max_shapes": 1}})


# tasks


def park(
    world: World, name: str, delay_s: float = 0, *, message: str = "m", token: LimitedToken | None = None, **ask: Any
) -> None:
    due = datetime.fromtimestamp(world.clock.now_ms() / 1000 + delay_s, UTC) if delay_s else None
    spec = RequestSpec(component="t", **({"resources": {"gpu": 1}} | ask))
    task = TaskSpec(task=name, name="n", request=spec, message={"m": message}, not_before=due)
    TaskStore(world.client, world.clock).park_task(world.workspace, task, token=token)


def take(world: World) -> None:
    TaskStore(world.client, world.clock).take_outbox(world.workspace, 60, 60, 3)


def test_a_parked_task_counts_as_waiting_delayed_or_not(world: World) -> None:
    limit(world, max_waiting=2)
    world.submit(gpu=1)
    park(world, "a")
    park(world, "b", delay_s=60)
    refused = ("too_many_waiting", "workspace", "max_waiting", 2, 2)
    assert refusal(lambda: park(world, "c")) == refused
    assert refusal(lambda: park(world, "d", delay_s=60)) == refused
    assert refusal(lambda: world.submit(gpu=1)) == refused
    world.clock.advance(61)
    take(world)
    assert use(world)["max_waiting"] == 2


def test_a_delayed_task_counts_for_its_token_until_it_is_cancelled(world: World) -> None:
    park(world, "a", delay_s=60, token=TOKEN)
    assert world.client.zcard(key("limited_waiting", world.workspace, "token/ci")) == 1
    TaskStore(world.client, world.clock).cancel_task(world.workspace, "a")
    assert world.client.keys("*limited*") == []


def test_a_delayed_task_that_enters_the_queue_counts_for_its_token_once(world: World) -> None:
    world.submit(gpu=1)
    park(world, "a", delay_s=60, token=TOKEN)
    world.clock.advance(61)
    take(world)
    assert world.client.zcard(key("limited_waiting", world.workspace, "token/ci")) == 1
    TaskStore(world.client, world.clock).cancel_task(world.workspace, "a")
    assert world.client.keys("*limited*") == []


def test_a_delayed_task_of_one_shape_too_many_waits_for_longer(world: World) -> None:
    world.policy(limit={"gpu": 1}, reserved={"gpu": 1})
    limit(world, max_shapes=1)
    world.submit(gpu=1)
    park(world, "a", delay_s=60, preemptible=False, token=TOKEN)
    waits = world.submit(gpu=1)
    world.clock.advance(61)
    take(world)
    assert use(world)["max_shapes"] == 1
    world.cancel(waits)
    world.clock.advance(31)
    take(world)
    assert TaskStore(world.client, world.clock).get_task(world.workspace, "a").status == "parked"


def test_the_messages_of_tasks_are_counted_until_they_are_over(world: World) -> None:
    message = secrets.token_hex(2000)
    park(world, "a", message=message)
    park(world, "b", delay_s=60, message=message)
    size = use(world)["max_bytes"]
    assert size > 2 * 2000
    limit(world, max_bytes=size)
    assert refusal(lambda: park(world, "c"))[:3] == ("too_many_bytes", "workspace", "max_bytes")
    store = TaskStore(world.client, world.clock)
    for task in ("a", "b"):
        ended = store.cancel_task(world.workspace, task)
        store.acknowledge_end(world.workspace, task, ended.request.id if ended.request else None)
    assert use(world)["max_bytes"] < 500


# the audit


DAMAGES: dict[str, tuple[Callable[[World], object], str]] = {
    "too many bytes": (lambda world: world.client.hincrby(own(world, "meta"), "saved_bytes", 7), "bytes of bodies"),
    "too few bytes": (lambda world: world.client.hincrby(own(world, "meta"), "deleted_bytes", 7), "bytes of bodies"),
    "policies": (lambda world: world.client.hset(own(world, "meta"), "policies", "5"), "policies"),
    "no lanes": (lambda world: world.client.delete(own(world, "lanes")), "orchestrator/t|p|"),
    "a lane without waiters": (lambda world: world.client.sadd(own(world, "lanes"), "x/y|p|gpu=7"), "x/y|p|gpu=7"),
    "no waiters": (lambda world: world.client.delete(own(world, "limited_waiting", "token/ci")), "token/ci"),
    "no lanes of a token": (lambda world: world.client.delete(own(world, "limited_lanes", "token/ci")), "token/ci"),
    "a lost waiter": (
        lambda world: world.client.zadd(own(world, "limited_waiting", "token/ci"), {"x/y|p|gpu=7\nlost": 0}),
        "token/ci lost",
    ),
    "a lane of a token": (lambda world: world.client.sadd(own(world, "limited_lanes", "token/ci"), "x/y|p|gpu=7"), "gpu=7"),
    "a token without waiters": (lambda world: world.client.sadd(own(world, "limited_subjects"), "token/gone"), "token/gone"),
    "no rejected": (lambda world: world.client.delete(own(world, "rejected")), "rejected"),
}


def own(world: World, name: str, *parts: str) -> str:
    return key(name, world.workspace, *parts)


@pytest.mark.parametrize("name", DAMAGES)
def test_the_audit_repairs_what_limits_count(world: World, name: str) -> None:
    damage, finding = DAMAGES[name]
    world.submit(gpu=1)
    world.submit(gpu=2)
    submit(world, TOKEN, gpu=1)
    park(world, "a", token=TOKEN)
    park(world, "b", delay_s=60, token=LimitedToken("later", WaitLimits(max_waiting=9)))
    before = use(world)
    damage(world)
    assert any(finding in text for text in repair(world))
    assert use(world) == before


def test_an_audit_of_bytes_allows_for_what_changed_meanwhile(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = world.submit(gpu=1, labels={"note": "x" * 200})
    world.release(ended)
    audit_store = AuditStore(world.client, world.clock)
    original = audit_store._scripts.call

    def call(command: str, workspace: str, /, **args: Any) -> Any:
        if command == "audit_bodies":
            world.clock.advance(world.limits.retention_s + 1)
            world.ledger.clean_up(workspace)  # deletes a body that was added up
            world.submit(gpu=1)
        return original(command, workspace, **args)

    monkeypatch.setattr(audit_store._scripts, "call", call)
    assert Audit(world.ledger, audit_store).run(world.workspace) == []
