"""The planner's decisions by fair shares compared with an oracle written from the rules, over random small pools."""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random

import pytest

from app.domain.plan_steps import EndHold, EvictOverLimit, Preempt, Reprieve
from app.domain.snapshot import AccountSnapshot, PoolSnapshot, PublishedStatus, Waiter
from app.planner.planning_pass import plan_pool
from tests.properties.planner.fair_oracle import FairShareOracle
from tests.properties.planner.fair_strategies import SECOND_MS, HistoryGenerator, apply_operation

LONGER = int(os.environ.get("HISTORIES") or 0)
FIRST = int(os.environ.get("FIRST", 0))


def random_snapshot(seed: int, *, groups: bool, crowded: bool) -> PoolSnapshot:
    """Return a pool with a history; some of its accounts have been below their fair share for some time."""
    generator, random = HistoryGenerator(seed, groups=groups, crowded=crowded), Random(seed)
    history = generator.history()
    ledger = history.new_ledger()
    for operation in history.operations:
        apply_operation(ledger, operation, plan_pool)
    now = ledger.snapshot()
    return replace(now, accounts={name: _with_random_status(random, now, account) for name, account in now.accounts.items()})


def _with_random_status(random: Random, now: PoolSnapshot, account: AccountSnapshot) -> AccountSnapshot:
    if random.random() < 0.3:
        return account
    below_s, status = random.choice((None, 1, 31, 61, 121, 601)), random.choice(("", "starving", "aggressively_starving"))
    below_ms = None if below_s is None else now.now_ms - below_s * SECOND_MS
    over_ms = now.now_ms - random.choice((1, 30, 31, 99)) * SECOND_MS
    return replace(
        account, published=PublishedStatus(starvation_status=status if below_ms else "", below_ms=below_ms, over_ms=over_ms)
    )


def check_plan(now: PoolSnapshot) -> str:
    """Return the kind of plan; raise AssertionError if it is wrong."""
    plan = plan_pool(now)
    assert sum(isinstance(step, Preempt) for step in plan.steps) <= 1
    if plan.steps and isinstance(plan.steps[0], EvictOverLimit):
        _check_eviction(FairShareOracle(now), now, plan.steps[0])
        return "evicts"
    if any(isinstance(step, EvictOverLimit | EndHold | Reprieve) for step in plan.steps) or any(
        request.leaving_for == "" for request in now.allocations
    ):
        return "moved"
    oracle = FairShareOracle(now)
    step = next((step for step in plan.steps if isinstance(step, Preempt)), None)
    if oracle.is_backing_off() or oracle.max_victims() == 0:
        assert step is None
        return "pauses"
    owners = [hold.owner for hold in now.holds]
    behind = _waiters_behind(oracle, now)
    for waiter in (*owners, *(request for request in oracle.waiters_in_order() if request.id not in behind)):
        if not oracle.shortages(waiter) or oracle.is_fixed_share_used_up(waiter) or not oracle.level(waiter):
            assert step is None or step.waiter != waiter.id
            continue
        victims = oracle.victims_in_order(waiter)
        max_victims = oracle.max_victims()
        if victims is not None and (max_victims is None or len(victims) <= max_victims) and oracle.lawful(waiter, victims):
            assert step == _with_conditions_of(step, oracle.step(waiter, victims)), (
                f"not {step} but {oracle.step(waiter, victims)}"
            )
            return "plain"
        if step is not None and step.waiter == waiter.id:
            _check_other_set(oracle, now, step)
            return "another set"
        other_set = next(oracle.all_sets(waiter, max_victims), None)
        assert other_set is None, (
            f"{waiter.id} may take {[victim.id for victim in other_set]}, but {plan.decisions[waiter.id].reason}"
        )
    assert step is None, f"{step} for a waiter that may not take"
    return "none"


def _check_eviction(oracle: FairShareOracle, now: PoolSnapshot, step: EvictOverLimit) -> None:
    """Check that the victims of an eviction are needed, allowed, and enough as far as there are any."""
    ids = {victim.request for victim in step.victims}
    allocations = [allocation for allocation in now.allocations if allocation.leaving_for is None]
    victims = [allocation for allocation in allocations if allocation.id in ids]
    assert [allocation.id for allocation in reversed(victims)] == [victim.request for victim in step.victims], (
        "not the newest first"
    )
    no_waiter = Waiter("", "", {}, preemptible=True, preemption_class=0, submission_number=0)
    assert not any(oracle.protected(no_waiter, allocation) for allocation in victims)
    for allocation in victims:
        assert any(
            oracle.is_over(account, key, ids - {allocation.id})
            for account in oracle.path(allocation)
            for key in allocation.amounts
        ), allocation.id
    if now.settings.max_preemptions_per_minute is None:
        for allocation in allocations:
            if allocation.id not in ids and not oracle.protected(no_waiter, allocation):
                assert not any(
                    oracle.is_over(account, key, ids) for account in oracle.path(allocation) for key in allocation.amounts
                ), allocation.id


def _waiters_behind(oracle: FairShareOracle, now: PoolSnapshot) -> set[str]:
    """Return the waiters behind the first one that is blocked by capacity, if the queue is strict."""
    if now.settings.queueing != "strict":
        return set()
    queue = sorted((*now.waiters, *(hold.owner for hold in now.holds)), key=lambda waiter: waiter.queue_score)
    blocked = [oracle.blocked_by(waiter) == "capacity" for waiter in queue]
    return {waiter.id for index, waiter in enumerate(queue) if any(blocked[:index])}


def _with_conditions_of(step: Preempt | None, other: Preempt) -> Preempt:
    return replace(other, usage_conditions=step.usage_conditions) if step else other


def _check_other_set(oracle: FairShareOracle, now: PoolSnapshot, step: Preempt) -> None:
    """Check that a set other than the first in order is allowed too."""
    waiter = next(request for request in (*now.waiters, *(hold.owner for hold in now.holds)) if request.id == step.waiter)
    ids = {victim.request for victim in step.victims}
    victims = [request for request in now.allocations if request.id in ids]
    assert oracle.fits(waiter, victims)
    assert not oracle.superfluous(waiter, victims)
    assert oracle.lawful(waiter, victims), f"{ids} may not be taken by {waiter.id}"
    max_victims = oracle.max_victims()
    assert max_victims is None or len(victims) <= max_victims


@pytest.mark.timeout(24 * 3600 if LONGER else 120)
@pytest.mark.parametrize("crowded", [False, True], ids=["some", "many"])
@pytest.mark.parametrize("groups", [False, True], ids=["flat", "grouped"])
def test_the_planner_decides_as_the_oracle(groups: bool, crowded: bool) -> None:
    kinds = set()
    for seed in range(FIRST, FIRST + (LONGER or 90)):
        try:
            kinds.add(check_plan(random_snapshot(seed, groups=groups, crowded=crowded)))
        except AssertionError as error:
            raise AssertionError(f"{seed}: {error}") from error
    assert {"plain", "none"} <= kinds
