"""Explanations: each verdict, its numbers, its sentence, and the change that would help."""

from __future__ import annotations

import pytest

from app.domain.errors import NotFound
from app.domain.explanations import Explanation, PoolExplanation
from app.domain.models import Request
from app.domain.queue_score import MAX_AMOUNT
from app.domain.specs import WorkspaceSettings
from app.service import explain_text
from app.service.decision_cache import DecisionCache
from app.service.explain import Explainer
from app.service.reconcile import Reconciler
from app.store.queue_status import QueueStatusStore
from tests.support.world import World


@pytest.fixture
def explainer(world: World) -> Explainer:
    standings, looking = QueueStatusStore(world.client, world.clock), DecisionCache(world.plan_store, world.ledger, ttl_s=0)
    return Explainer(standings, world.plan_store, world.ledger, decision_cache=looking)


def explain(explainer: Explainer, world: World, request: Request) -> Explanation:
    return explainer.explain(world.workspace, request.id)


def only(explainer: Explainer, world: World, request: Request) -> PoolExplanation:
    (pool,) = explain(explainer, world, request).pools
    return pool


def reconcile(world: World) -> None:
    Reconciler(world.plan_store, world.ledger).run(world.workspace)


def test_no_capacity_names_the_holders_and_the_missing_units(world: World, explainer: Explainer) -> None:
    world.pool(gpu=4)
    world.policy("t")
    world.policy("u", limit={"gpu": 2})
    world.submit("t", gpu=3, walltime_s=60)
    first, second = world.submit("t", gpu=2), world.submit("t", gpu=4)
    world.submit("u", gpu=1)
    limited = world.submit("u", gpu=2)
    pool_explanation = only(explainer, world, first)
    assert (pool_explanation.status.position, pool_explanation.status.waiter_count, pool_explanation.status.wait_reason) == (
        1,
        3,
        "no_capacity",
    )
    view = pool_explanation.keys["gpu"]
    assert (view.needed, view.free, view.held_for_others, view.limit, view.reserved) == (2, 0, 0, None, 0)
    holders = [(each.component, each.used, each.borrowed, each.next_end_ms) for each in pool_explanation.holders]
    assert holders == [
        ("orchestrator/t", {"gpu": 3}, {"gpu": 3}, world.clock.now_ms() + 60_000),
        ("orchestrator/u", {"gpu": 1}, {"gpu": 1}, None),
    ]
    assert (pool_explanation.preemption.considered, pool_explanation.preemption.code) == (True, "not_enough")
    assert {each.why_not for each in pool_explanation.preemption.candidates}
    assert pool_explanation.would_start_if == "2 gpu come free in p"
    explanation = explain(explainer, world, first).sentence
    assert explanation == f"Request {first.id} waits in p as number 1 of 3: it needs 2 gpu, and 0 of 4 are free."
    behind = only(explainer, world, second)
    assert (behind.status.position, behind.status.wait_reason) == (2, "no_capacity")
    assert behind.would_start_if == "the one before it is served or does not fit, and 4 gpu come free in p"
    over = only(explainer, world, limited)
    assert over.status.wait_reason == "over_limit"
    assert over.status.blocking
    assert over.status.blocking.account == "policy:orchestrator/u"
    assert [each.component for each in over.holders] == ["orchestrator/u"]
    assert "policy orchestrator/u uses 1 of the 2 that it may use at most" in explain(explainer, world, limited).sentence


def test_a_request_that_does_not_wait_gets_a_sentence(world: World, explainer: Explainer) -> None:
    world.pool(gpu=1)
    world.policy("t")
    allocation, never = world.submit("t", gpu=1), world.submit("t", gpu=2)
    assert explain(explainer, world, allocation).sentence == f"Request {allocation.id} holds 1 gpu in p."
    assert "could never be granted: p: asks 2 of gpu; the pool has 1 in all." in explain(explainer, world, never).sentence
    world.release(allocation)
    assert explain(explainer, world, allocation).sentence.endswith("has ended, and its units were given back.")
    with pytest.raises(NotFound):
        explainer.explain(world.workspace, "0" * 20)


def test_a_group_and_a_fixed_share_are_named_with_their_numbers(world: World, explainer: Explainer) -> None:
    world.pool(gpu=8)
    world.group("lab", limit={"gpu": 3}, reserved={"gpu": 2})
    world.policy("t", group="lab", reserved={"gpu": 2})
    world.policy("u", group="lab")
    world.submit("t", gpu=2, preemptible=False)
    fixed = world.submit("t", gpu=1, preemptible=False)
    grouped = world.submit("u", gpu=2)
    assert only(explainer, world, fixed).status.wait_reason == "over_reserved"
    explanation = explain(explainer, world, fixed).sentence
    assert "but of the 2 reserved for policy orchestrator/t, other non-preemptible requests use 2" in explanation
    pool_explanation = only(explainer, world, fixed)
    assert pool_explanation.would_start_if == "other non-preemptible requests of policy orchestrator/t release 1 gpu"
    pool_explanation = only(explainer, world, grouped)
    assert pool_explanation.status.wait_reason == "group_limit"
    assert [each.component for each in pool_explanation.holders] == ["orchestrator/t"]
    assert pool_explanation.would_start_if == "the one before it is served or does not fit, and 1 gpu comes free in group lab"
    explanation = explain(explainer, world, grouped).sentence
    assert "it needs 2 gpu, and group lab uses 2 of the 3 that it may use at most" in explanation


def test_waits_for_victims_and_waits_behind_a_hold(world: World, explainer: Explainer) -> None:
    world.pool(gpu=4, settings={"grace_s": 30})
    world.policy("low")
    world.policy("high", priority=5)
    first, second = world.submit("low", gpu=2), world.submit("low", gpu=2)
    owner = world.submit("high", gpu=4)
    reconcile(world)
    leaving = [request for request in (first, second) if world.get(request).status == "preempting"]
    pool_explanation = only(explainer, world, owner)
    assert (pool_explanation.status.wait_reason, set(pool_explanation.preemption.leaving)) == (
        "waiting_for_victims",
        {request.id for request in leaving},
    )
    assert "2 victims are leaving for it" in explain(explainer, world, owner).sentence
    late = world.submit("low", gpu=1)
    world.release(leaving[0], outcome="failed")
    pool_explanation = only(explainer, world, late)
    assert (
        pool_explanation.status.wait_reason,
        pool_explanation.keys["gpu"].free,
        pool_explanation.keys["gpu"].held_for_others,
    ) == ("held", 2, 2)
    assert "the free units of p are held for requests with leaving victims" in explain(explainer, world, late).sentence


def test_a_patience_hold_keeps_free_units_for_its_owner(world: World, explainer: Explainer) -> None:
    world.pool(gpu=4, settings={"patience_s": 1})
    world.policy("t")
    world.submit("t", gpu=3)
    owner = world.submit("t", gpu=4)
    world.pass_time(2)
    late = world.submit("t", gpu=1)
    explanation = explain(explainer, world, owner).sentence
    assert explanation.endswith("it needs 4 gpu, and 1 of 4 is free; units that come free are held for it.")
    pool_explanation = only(explainer, world, late)
    assert (pool_explanation.status.wait_reason, pool_explanation.status.patience_owner) == ("held", owner.id)
    assert f"the free units of p are held for request {owner.id}" in explain(explainer, world, late).sentence


def test_strict_queueing_keeps_those_behind(world: World, explainer: Explainer) -> None:
    world.pool(gpu=4, settings={"queueing": "strict"})
    world.policy("t")
    world.submit("t", gpu=3)
    first, second = world.submit("t", gpu=2), world.submit("t", gpu=1)
    pool_explanation = only(explainer, world, second)
    assert (pool_explanation.status.wait_reason, pool_explanation.status.position, pool_explanation.preemption.considered) == (
        "behind",
        2,
        False,
    )
    assert pool_explanation.would_start_if == f"request {first.id}, the first in the line, is granted or leaves the queue"
    assert f"there is room for it, but the queue is strict and request {first.id} is before it" in (
        explain(explainer, world, second).sentence
    )


def test_each_pool_it_waits_in_is_told_the_preferred_one_first(world: World, explainer: Explainer) -> None:
    for name, priority in (("a", 1), ("b", 5)):
        world.pool(name, gpu=1)
        world.policy("t", name, priority=priority)
        world.submit("t", gpu=1)
    explanation = explain(explainer, world, world.submit("t", gpu=1))
    assert [pool.status.pool for pool in explanation.pools] == ["b", "a"]
    assert explanation.sentence.count("as number 1 of 1") == 2


def test_the_next_end_is_of_holders_of_missing_units(world: World, explainer: Explainer) -> None:
    world.pool(gpu=2, lic=4)
    for name in ("t", "u", "v"):
        world.policy(name)
    world.submit("u", gpu=2)
    world.submit("u", lic=1, walltime_s=60)
    world.submit("v", lic=1, walltime_s=60)
    pool_explanation = only(explainer, world, world.submit("t", gpu=1, lic=1))
    assert [(each.component, each.used, each.next_end_ms) for each in pool_explanation.holders] == [
        ("orchestrator/u", {"gpu": 2, "lic": 1}, None),
    ]


def test_slots_are_told_where_they_lack(world: World, explainer: Explainer) -> None:
    world.pool(gpu=4, step_run=1)
    world.policy("t")
    allocation, waits = world.submit("t", gpu=1), world.submit("t", gpu=1)
    explanation = explain(explainer, world, waits)
    assert explanation.sentence.endswith("it needs 1 step_run, and 0 of 1 are free.")
    assert explanation.pools[0].would_start_if == "1 step_run comes free in p"
    assert explain(explainer, world, allocation).sentence == f"Request {allocation.id} holds 1 gpu in p."


def test_what_no_pool_manages_and_what_cannot_be_counted_is_told_without_numbers_that_are_none(
    world: World, explainer: Explainer
) -> None:
    world.ledger.update_workspace(world.workspace, WorkspaceSettings(unmanaged="allow"))
    free = world.submit("unmanaged", gpu=3)
    assert explain(explainer, world, free).sentence == f"Request {free.id} holds 3 gpu outside all pools."
    world.pool(gpu=4)
    world.policy("t")
    world.submit("t", mcpu=MAX_AMOUNT)
    explanation = explain(explainer, world, world.submit("t", mcpu=MAX_AMOUNT))
    assert explanation.sentence.endswith(f"it needs {MAX_AMOUNT} mcpu, and there is none in p.")


def test_the_owner_of_a_hold_is_told_that_others_are_leaving_for_it(world: World, explainer: Explainer) -> None:
    world.pool(gpu=4, settings={"grace_s": 30})
    world.policy("low")
    world.policy("high", priority=5)
    running = [world.submit("low", gpu=2) for _ in range(2)]
    owner = world.submit("high", gpu=4)
    reconcile(world)
    explanation = only(explainer, world, owner).preemption
    assert (explanation.considered, explanation.code, explanation.reason) == (True, "leaving", "2 victims are leaving for it")
    assert set(explanation.leaving) == {request.id for request in running}


def test_holders_that_are_not_told_are_counted(world: World, explainer: Explainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.service.explain.MAX_CANDIDATES", 2)
    world.pool(gpu=3)
    for name in ("a", "b", "c"):
        world.policy(name)
        world.submit(name, gpu=1)
    pool_explanation = only(explainer, world, world.submit("a", gpu=1))
    assert ([each.component for each in pool_explanation.holders], pool_explanation.more_holders) == (
        ["orchestrator/a", "orchestrator/b"],
        1,
    )


def test_a_waiter_among_many_of_its_shape_gets_a_decision(world: World, explainer: Explainer) -> None:
    world.pool(gpu=1)
    world.policy("t")
    world.submit("t", gpu=1)
    waits = [world.submit("t", gpu=1) for _ in range(12)]
    assert waits[-1].id not in {waiter.id for waiter in world.snapshot().waiters}, "some of many alike are shown"
    explanation = only(explainer, world, waits[-1])
    assert (explanation.preemption.considered, explanation.preemption.code, len(explanation.preemption.candidates)) == (
        True,
        "not_enough",
        1,
    )


def test_without_permission_the_explanation_has_no_ids_of_others(world: World, explainer: Explainer) -> None:
    world.pool(gpu=4, settings={"patience_s": 1})
    world.policy("t")
    allocation = world.submit("t", gpu=3)
    owner = world.submit("t", gpu=4)
    world.pass_time(2)
    late = world.submit("t", gpu=1)
    explanation = explain_text.anonymize(explain(explainer, world, late))
    assert explanation.sentence.endswith("the free units of p are held for another request.")
    assert owner.id not in repr((explanation.sentence, explanation.pools[0].would_start_if))
    assert explain_text.anonymize(explain(explainer, world, allocation)) == explain(explainer, world, allocation)


def test_a_victim_learns_its_waiter_only_with_permission(world: World, explainer: Explainer) -> None:
    world.pool(gpu=1, settings={"grace_s": 30})
    world.policy("low")
    world.policy("high", priority=5)
    victim, owner = world.submit("low", gpu=1), world.submit("high", gpu=1)
    reconcile(world)
    explanation = explain(explainer, world, victim)
    assert explanation.sentence.endswith(f"and has to leave: preempted for request {owner.id}, which ranks higher.")
    assert explain_text.anonymize(explanation).sentence.endswith(
        "and has to leave: preempted for another request, which ranks higher."
    )
