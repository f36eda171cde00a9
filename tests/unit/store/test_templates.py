"""Policy templates: each component that asks and has no policy gets an instance."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from app.domain.errors import Conflict, LimitReached, RuleViolation
from app.domain.models import Policy
from app.domain.reasons import ReasonCode
from app.domain.specs import RequestSpec
from app.domain.tasks import TaskSpec
from app.service.audit import Audit
from app.store.audit import AuditStore
from app.store.keys import key
from app.store.task_outbox import TaskStore
from tests.support.world import World

MADE_BY = "orchestrator/user-*"


def policies(world: World, pool: str = "p") -> dict[str, Policy]:
    return dict(world.ledger.get_pool(world.workspace, pool).policies)


def instances(world: World, pool: str = "p") -> list[str]:
    """Return the components with an instance of a template."""
    return sorted(name.partition("/")[2] for name, policy in policies(world, pool).items() if policy.template)


def keys(world: World) -> set[str]:
    return {key.decode() if isinstance(key, bytes) else key for key in world.client.scan_iter("*")}


def test_each_component_gets_an_instance(world: World) -> None:
    world.pool(gpu=4)
    world.policy("user-*", limit={"gpu": 1}, priority=3, weight=2, profile="training", settings={"over_limit": "keep"})
    assert world.submit("user-ana", gpu=1).status == "allocated"
    assert world.submit("user-ana", gpu=1).status == "queued"
    assert world.submit("user-bob", gpu=1).status == "allocated"
    refused = world.submit("robot", gpu=1)
    assert refused.status == "rejected"
    assert refused.reason is not None
    assert refused.reason.code is ReasonCode.NO_POLICY
    rows = policies(world)
    assert rows[MADE_BY].policies == 2
    assert rows[MADE_BY].template is None
    ana = rows["orchestrator/user-ana"]
    assert (ana.template, ana.limit, ana.priority, ana.weight, ana.profile) == (MADE_BY, {"gpu": 1}, 3, 2, "training")
    assert (ana.settings, ana.policies, ana.used["gpu"], ana.queued) == ({"over_limit": "keep"}, None, 1, 1)


def test_the_longest_template_wins_and_a_declared_policy_before_both(world: World) -> None:
    world.pool(gpu=9)
    for component, limit in (("user-*", 1), ("user-vip-*", 2), ("user-vip-eve", 3)):
        world.policy(component, limit={"gpu": limit})
    refused = world.submit("user-ana", gpu=2)
    assert refused.reason is not None
    assert refused.reason.code is ReasonCode.EXCEEDS_LIMIT
    assert refused.reason.message == "p: asks 2 of gpu; the limit of policy orchestrator/user-ana is 1"
    assert world.submit("user-vip-ben", gpu=2).status == "allocated"
    assert world.submit("user-vip-eve", gpu=3).status == "allocated"
    assert instances(world) == ["user-vip-ben"]


def test_a_template_of_a_type_is_for_every_component_of_the_type_and_no_other(world: World) -> None:
    world.pool(gpu=9)
    world.policy("intern/*", limit={"gpu": 1})
    assert world.submit("intern/ana", gpu=1).status == "allocated"
    assert world.submit("ana", gpu=1).status == "rejected"
    assert world.submit("intern2/ana", gpu=1).status == "rejected"


def test_the_limit_of_a_group_is_for_all_together_and_that_of_the_template_for_each(world: World) -> None:
    world.pool(gpu=8)
    world.group("interns", limit={"gpu": 2})
    world.policy("intern/*", group="interns", limit={"gpu": 1})
    ana, again, bob, cyd = (world.submit(f"intern/{name}", gpu=1) for name in ("ana", "ana", "bob", "cyd"))
    assert [each.status for each in (ana, again, bob, cyd)] == ["allocated", "queued", "allocated", "queued"]
    world.release(bob)
    assert [world.get(each).status for each in (again, cyd)] == ["queued", "allocated"]


@pytest.mark.parametrize(
    "fields",
    [{"gpu": 5}, {"gpu": 2**53 - 1}, {"tpu": 1}, {"gpu": 1, "preemptible": False}],
    ids=["much", "huge", "key", "fixed"],
)
def test_a_rejected_request_leaves_no_instance_and_no_key(world: World, fields: dict[str, Any]) -> None:
    world.pool(gpu=4)
    world.policy("user-*", limit={"gpu": 1})
    before = keys(world)
    for number in range(3):
        assert world.submit(f"user-{number}", **fields).status == "rejected"
    new = {key.partition("}:")[2].partition(":")[0] for key in keys(world) - before}
    assert new <= {"request", "requests", "ended", "rejected", "events", "counters", "bodies"}
    assert policies(world).keys() == {MADE_BY}


def test_a_template_has_at_most_template_max_instances(world: World) -> None:
    world.pool(gpu=9, settings={"template_max": 3})
    world.policy("user-*", settings={"template_max": 2})
    first = world.submit("user-a", gpu=1)
    world.submit("user-b", gpu=1)
    with pytest.raises(LimitReached) as refusal:
        world.submit("user-c", gpu=1)
    assert (refusal.value.code, refusal.value.subject) == ("too_many_tenants", "template/orchestrator/user-*")
    assert str(refusal.value) == "the template orchestrator/user-* has 2 instances; template_max is 2"
    assert world.submit("user-a", gpu=1).status == "allocated"
    world.policy("user-*")  # the value of the pool
    assert world.submit("user-c", gpu=1).status == "allocated"
    assert instances(world) == ["user-a", "user-b", "user-c"]
    world.release(first)


def test_a_full_template_leaves_the_other_pools_of_the_component(world: World) -> None:
    world.pool("p", gpu=9)
    world.pool("q", gpu=9)
    world.policy("user-*", "p", priority=5, settings={"template_max": 1})
    world.policy("user-*", "q", limit={"gpu": 2})
    assert world.submit("user-a", gpu=1).pool == "p"
    assert world.submit("user-b", gpu=1).pool == "q"
    with pytest.raises(LimitReached):
        world.submit("user-c", gpu=3)  # too much for q
    assert world.submit("user-c", gpu=10).status == "rejected"  # too much for both


def test_an_idle_instance_is_deleted_with_all_its_keys(world: World) -> None:
    world.pool(gpu=1, settings={"template_idle_s": 60, "discipline": "fair_share"})
    world.policy("user-*")
    before = keys(world)
    held, waiter = world.submit("user-a", gpu=1), world.submit("user-b", gpu=1)
    world.pass_time(3600)
    assert instances(world) == ["user-a", "user-b"]
    world.release(held)
    world.release(world.get(waiter))
    world.pass_time(59)
    assert instances(world) == ["user-a", "user-b"]
    world.clock.advance(61)
    counts = world.ledger.clean_up(world.workspace)
    assert counts.idle_policies == 2
    assert instances(world) == []
    assert not {key for key in keys(world) - before if "user-a" in key or "user-b" in key}


def test_a_change_of_a_template_changes_its_instances(world: World) -> None:
    world.pool(gpu=99)
    world.policy("user-*", limit={"gpu": 1}, settings={"over_limit": "keep"})
    waiters = [world.submit(f"user-{number}", gpu=1) for number in range(40) for _ in range(2)][1::2]
    assert {waiter.status for waiter in waiters} == {"queued"}
    world.policy("user-*", limit={"gpu": 2}, priority=7)
    rows = policies(world)
    assert {(row.limit["gpu"], row.priority, tuple(row.settings)) for row in rows.values()} == {(2, 7, ())}
    assert {world.get(waiter).status for waiter in waiters} == {"allocated"}


def test_a_change_of_a_template_keeps_the_highest_use_of_its_instances(world: World) -> None:
    world.pool(gpu=4)
    world.policy("user-*", limit={"gpu": 2})
    world.release(world.submit("user-ana", gpu=2))
    world.policy("user-*", limit={"gpu": 3})
    key = next(key for key in keys(world) if key.endswith("policy:orchestrator/user-ana"))
    assert world.client.hmget(key, "limit:gpu", "peak.gpu") == ["3", "2"]


def test_a_template_is_deleted_when_no_instance_is_in_use(world: World) -> None:
    world.pool(gpu=99)
    world.policy("user-*")
    held = [world.submit(f"user-{number}", gpu=1) for number in range(70)]
    with pytest.raises(Conflict, match="policy orchestrator/user-"):
        world.ledger.delete_policy(world.workspace, "p", MADE_BY)
    assert len(instances(world)) == 70
    for each in held:
        world.release(each)
    world.ledger.delete_policy(world.workspace, "p", MADE_BY)
    assert policies(world) == {}
    assert world.submit("user-1", gpu=1).status == "rejected"


def test_a_declared_policy_replaces_an_instance(world: World) -> None:
    world.pool(gpu=9)
    world.policy("user-*", limit={"gpu": 1})
    world.submit("user-a", gpu=1)
    waiter = world.submit("user-a", gpu=1)
    world.policy("user-a", limit={"gpu": 2})
    assert world.get(waiter).status == "allocated"
    rows = policies(world)
    assert (rows["orchestrator/user-a"].template, rows[MADE_BY].policies) == (None, 0)


def test_a_template_reserves_for_as_many_instances_as_it_may_have(world: World) -> None:
    world.pool(gpu=8, settings={"template_max": 4})
    with pytest.raises(RuleViolation) as refusal:
        world.policy("user-*", reserved={"gpu": 3})
    assert refusal.value.code == "overpromised"
    world.policy("user-*", reserved={"gpu": 1})
    with pytest.raises(RuleViolation):
        world.policy("t", reserved={"gpu": 5})
    with pytest.raises(RuleViolation):
        world.update_pool(settings={"template_max": 9})
    world.submit("user-a", gpu=1)
    world.update_pool(settings={"template_max": 3})
    world.policy("t", reserved={"gpu": 5})


@pytest.mark.parametrize("of_pool", [False, True])
def test_a_template_reserves_for_the_policies_that_it_has(world: World, of_pool: bool) -> None:
    world.pool(gpu=4, settings={"template_max": 4})
    world.policy("user-*", reserved={"gpu": 1})
    for number in range(4):
        world.release(world.submit(f"user-{number}", gpu=1))
    if of_pool:
        world.update_pool(settings={"template_max": 1})
    else:
        world.policy("user-*", reserved={"gpu": 1}, settings={"template_max": 1})
    with pytest.raises(RuleViolation) as refusal:
        world.policy("t", reserved={"gpu": 1})
    assert refusal.value.code == "overpromised"


def test_waiters_of_a_component_wait_in_a_pool_that_a_template_opens_later(world: World) -> None:
    world.pool("p", gpu=1)
    world.pool("q", gpu=1)
    world.policy("user-a", "p")
    held, older = world.submit("user-a", gpu=1), world.submit("user-a", gpu=1)
    world.policy("user-*", "q")
    newer = world.submit("user-a", gpu=1)
    assert [world.get(each).status for each in (held, older, newer)] == ["allocated", "allocated", "queued"]
    assert world.get(older).pool == "q"


def test_a_waiter_that_fits_no_other_pool_waits_where_a_template_opens_one(world: World) -> None:
    world.pool("p", gpu=2)
    world.pool("q", gpu=2, settings={"template_max": 1})
    world.policy("user-a", "p")
    world.policy("user-b", "p")
    world.submit("user-a", gpu=2)
    first, second = (world.submit("user-a", gpu=2, preemption_class=number) for number in (5, 3))
    named, full = world.submit("user-a", gpu=2, pools=["p"]), world.submit("user-b", gpu=2)
    world.policy("user-*", "q")
    world.policy("user-a", "p", limit={"gpu": 1})
    assert world.status(first, second, named) == ["allocated", "queued", "rejected"]
    assert (world.get(first).pool, world.get(second).position) == ("q", {"q": 1})
    world.policy("user-b", "p", limit={"gpu": 1})
    assert world.status(full) == ["rejected"]
    assert instances(world, "q") == ["user-a"]


def test_an_idle_instance_follows_the_longest_template(world: World) -> None:
    world.pool(gpu=9)
    world.policy("user-*", limit={"gpu": 1})
    held = world.submit("user-vip-a", gpu=1)
    world.policy("user-vip-*", limit={"gpu": 2})
    assert world.submit("user-vip-a", gpu=2).status == "rejected"
    world.release(held)
    assert world.submit("user-vip-a", gpu=2).status == "allocated"
    assert [policies(world)[f"orchestrator/user-{part}*"].policies for part in ("", "vip-")] == [0, 1]


def test_a_new_tenant_is_as_little_satisfied_as_it_will_be(world: World) -> None:
    world.pool("p", gpu=5)
    world.pool("q", gpu=5, settings={"discipline": "fair_share", "queueing": "strict"})
    world.policy("u", "p")
    world.policy("*", "q", priority=2)
    world.submit("t", gpu=3)
    assert world.submit("t", gpu=3).status == "queued"  # at the head of the line
    assert world.submit("u", gpu=2).pool == "q"


def test_an_instance_is_idle_from_its_last_request_or_release_on(world: World) -> None:
    world.pool(gpu=1, settings={"template_idle_s": 60})
    world.policy("user-*")
    held, waiter = world.submit("user-a", gpu=1), world.submit("user-b", gpu=1)
    world.pass_time(50)
    world.cancel(waiter)
    world.release(held)
    world.pass_time(50)
    assert instances(world) == ["user-a", "user-b"]
    world.pass_time(11)
    assert instances(world) == []


def test_a_delayed_task_waits_for_room_at_its_template(world: World) -> None:
    world.pool(gpu=9, settings={"template_max": 1, "template_idle_s": 60})
    world.policy("user-*")
    held = world.submit("user-a", gpu=1)
    later = datetime.fromtimestamp(world.clock.now_ms() / 1000 + 10, UTC)
    ask = RequestSpec(component="user-b", resources={"gpu": 1})
    store = TaskStore(world.client, world.clock)
    store.park_task(world.workspace, TaskSpec(task="a", name="x", request=ask, message={}, not_before=later))
    with pytest.raises(LimitReached):
        store.park_task(world.workspace, TaskSpec(task="b", name="x", request=ask, message={}))
    world.clock.advance(11)
    store.take_outbox(world.workspace, 1, 1, 1)
    assert store.get_task(world.workspace, "a").status == "delayed"
    world.release(held)
    world.pass_time(61)
    store.take_outbox(world.workspace, 1, 1, 1)
    assert store.get_task(world.workspace, "a").status != "delayed"
    assert instances(world) == ["user-b"]


def test_preempted_work_keeps_its_policy_if_the_longest_template_is_full(world: World) -> None:
    world.pool(gpu=1, settings={"grace_s": 0})
    world.policy("user-*")
    world.policy("t", priority=9)
    held = world.submit("user-vip-a", gpu=1)
    world.policy("user-vip-*", settings={"template_max": 1})
    world.submit("user-vip-b", gpu=1)
    world.preempt(world.submit(gpu=1), held)
    world.enforce_deadlines(1)
    assert world.status(held) == ["queued"]
    assert policies(world)["orchestrator/user-vip-a"].template == MADE_BY
    assert world.submit("user-vip-a", gpu=1).status == "queued"


def test_a_lost_task_waits_for_room_at_its_template(world: World) -> None:
    world.pool(gpu=9, settings={"template_max": 1, "template_idle_s": 60})
    world.policy("user-*")
    store = TaskStore(world.client, world.clock)
    ask = RequestSpec(component="user-a", resources={"gpu": 1})
    task = store.park_task(world.workspace, TaskSpec(task="a", name="x", request=ask, message={}))
    assert task.request is not None
    world.release(task.request, outcome="lost")
    world.pass_time(61)
    other = world.submit("user-b", gpu=1)
    store.take_outbox(world.workspace, 1, 1, 1)
    assert store.get_task(world.workspace, "a").status == "delayed"
    world.release(other)
    world.pass_time(61)
    store.take_outbox(world.workspace, 1, 1, 1)
    assert instances(world) == ["user-a"]


def test_a_policy_is_used_though_the_list_of_templates_was_lost(world: World) -> None:
    world.pool(gpu=9)
    world.policy("user-*")
    world.release(world.submit("user-a", gpu=1))
    world.client.delete(key("templates", world.workspace))
    assert world.submit("user-a", gpu=1).status == "allocated"
    Audit(world.ledger, AuditStore(world.client, world.clock)).run(world.workspace, repair=True)


@pytest.fixture
def unfinished(world: World) -> World:
    """Create a pool `q` with a lane whose waiters its policy does not count yet: the recheck is done, the sync of the
    queue is not."""
    world.pool("p", gpu=2)
    world.pool("q", gpu=1, settings={"template_idle_s": 10})
    world.policy("user-a", "p", priority=1)
    world.policy("t", "q")
    world.policy("user-*", "q")
    world.submit("user-a", gpu=2)
    idle = world.submit("user-a", gpu=1)
    for _ in range(5):
        world.submit("user-a", gpu=2)  # in `p` alone
    world.release(idle)
    world.submit("t", gpu=1)
    world.clock.advance(11)
    world.limits = replace(world.limits, chunk=1)
    world.call("update_pool", name="q", description="", capacity="gpu=2", settings="{}")
    assert policies(world, "q")["orchestrator/user-a"].queued == 0
    return world


def test_no_idle_policy_is_deleted_while_its_pool_has_unfinished_work(unfinished: World) -> None:
    for _ in range(2):
        unfinished.call("clean_up", retention_s=9999, available_since_ms="", expected="")
    unfinished.ledger.resume_all_unfinished(unfinished.workspace)
    assert policies(unfinished, "q")["orchestrator/user-a"].queued == 5
    unfinished.pass_time(2)
    assert instances(unfinished, "q") == ["user-a"]


def test_no_template_is_deleted_while_its_pool_has_unfinished_work(unfinished: World) -> None:
    assert unfinished.call("delete_idle_policies", pool="q", template=MADE_BY, count=9).tag == "unfinished"
    with pytest.raises(Conflict, match="policy orchestrator/user-a of template"):
        unfinished.ledger.delete_policy(unfinished.workspace, "q", MADE_BY)


def test_no_idle_policy_follows_another_template_while_its_pool_has_unfinished_work(unfinished: World) -> None:
    template = {"component": "orchestrator/user-a*", "priority": 0, "profile": "batch", "group": "", "weight": 1}
    unfinished.call("set_policy", op="x", pool="q", reserved="", limit="gpu=1", settings="[]", **template)
    unfinished.submit("user-a", gpu=1)
    assert policies(unfinished, "q")["orchestrator/user-a"].template == MADE_BY
    unfinished.ledger.resume_all_unfinished(unfinished.workspace)
    assert policies(unfinished, "q")["orchestrator/user-a"].queued == 5


def test_a_pool_that_is_deleted_during_a_change_of_a_template_leaves_no_key(world: World) -> None:
    world.pool(gpu=999)
    before = keys(world)
    world.policy("user-*")
    for number in range(300):
        world.release(world.submit(f"user-{number}", gpu=1))
    template = {"component": MADE_BY, "priority": 0, "profile": "batch", "group": "", "weight": 1}
    world.call("set_policy", op="x", pool="p", reserved="", limit="gpu=2", settings="[]", **template)
    assert [key for key in keys(world) - before if ":template_updates:" in key]
    world.ledger.delete_pool(world.workspace, "p")
    assert not [key for key in keys(world) - before if ":template" in key]
