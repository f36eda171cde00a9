"""What the planner decides by fair shares, against an oracle written from the words, over random small pools."""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random

import pytest

from app.domain.plan_steps import EndHold, EvictOverLimit, Preempt, Reprieve
from app.domain.snapshot import AccountSnapshot, PoolSnapshot, PublishedStatus, Waiter
from app.planner.planning_pass import plan_pool
from tests.properties.planner.fair_oracle import FairOracle
from tests.properties.planner.fair_strategies import SECOND_MS, Maker, act

LONGER = int(os.environ.get("HISTORIES") or 0)
FIRST = int(os.environ.get("FIRST", 0))


def seen(seed: int, *, groups: bool, crowded: bool) -> PoolSnapshot:
    """A pool with a past, of whose accounts some have been below their fair share for some time."""
    maker, random = Maker(seed, groups=groups, crowded=crowded), Random(seed)
    world = maker.world()
    book = world.book()
    for op in world.ops:
        act(book, op, plan_pool)
    now = book.snapshot()
    return replace(now, accounts={name: _kept(random, now, account) for name, account in now.accounts.items()})


def _kept(random: Random, now: PoolSnapshot, account: AccountSnapshot) -> AccountSnapshot:
    if random.random() < 0.3:
        return account
    below_s, status = random.choice((None, 1, 31, 61, 121, 601)), random.choice(("", "starving", "aggressively_starving"))
    below_ms = None if below_s is None else now.now_ms - below_s * SECOND_MS
    over_ms = now.now_ms - random.choice((1, 30, 31, 99)) * SECOND_MS
    return replace(
        account, published=PublishedStatus(starvation_status=status if below_ms else "", below_ms=below_ms, over_ms=over_ms)
    )


def check(now: PoolSnapshot) -> str:
    """What the planner did: the kind of case; an error if it is wrong."""
    found = plan_pool(now)
    assert sum(isinstance(step, Preempt) for step in found.steps) <= 1
    if found.steps and isinstance(found.steps[0], EvictOverLimit):
        _relieves(FairOracle(now), now, found.steps[0])
        return "evicts"
    if any(isinstance(step, EvictOverLimit | EndHold | Reprieve) for step in found.steps) or any(
        one.leaving_for == "" for one in now.allocations
    ):
        return "moved"
    oracle = FairOracle(now)
    stop = next((step for step in found.steps if isinstance(step, Preempt)), None)
    if oracle.is_backing_off() or oracle.max_victims() == 0:
        assert stop is None
        return "pauses"
    owners = [hold.owner for hold in now.holds]
    behind = _behind(oracle, now)
    for asker in (*owners, *(one for one in oracle.in_turn() if one.id not in behind)):
        if not oracle.shortages(asker) or oracle.is_fixed_share_used_up(asker) or not oracle.stage(asker):
            assert stop is None or stop.waiter != asker.id
            continue
        plain = oracle.victims_in_order(asker)
        most = oracle.max_victims()
        if plain is not None and (most is None or len(plain) <= most) and oracle.lawful(asker, plain):
            assert stop == _like(stop, oracle.step(asker, plain)), f"not {stop} but {oracle.step(asker, plain)}"
            return "plain"
        if stop is not None and stop.waiter == asker.id:
            _wellfounded(oracle, now, stop)
            return "another set"
        other = next(oracle.all_sets(asker, most), None)
        assert other is None, f"{asker.id} may take {[one.id for one in other]}, but {found.decisions[asker.id].reason}"
    assert stop is None, f"{stop} for one who may not take"
    return "none"


def _relieves(oracle: FairOracle, now: PoolSnapshot, step: EvictOverLimit) -> None:
    """Those that go are needed, may go, and are all that it takes as far as there are any."""
    ids = {victim.request for victim in step.victims}
    running = [one for one in now.allocations if one.leaving_for is None]
    victims = [one for one in running if one.id in ids]
    assert [one.id for one in reversed(victims)] == [victim.request for victim in step.victims], "not the newest first"
    nobody = Waiter("", "", {}, preemptible=True, preemption_class=0, submission_number=0)
    assert not any(oracle.protected(nobody, one) for one in victims)
    for one in victims:
        assert any(oracle.is_over(account, key, ids - {one.id}) for account in oracle.path(one) for key in one.amounts), one.id
    if now.settings.max_preemptions_per_minute is None:
        for one in running:
            if one.id not in ids and not oracle.protected(nobody, one):
                assert not any(oracle.is_over(account, key, ids) for account in oracle.path(one) for key in one.amounts), one.id


def _behind(oracle: FairOracle, now: PoolSnapshot) -> set[str]:
    """Strict queueing: who stands behind the first that is blocked by capacity."""
    if now.settings.queueing != "strict":
        return set()
    queue = sorted((*now.waiters, *(hold.owner for hold in now.holds)), key=lambda one: one.queue_position)
    blocked = [oracle.blocked_by(one) == "capacity" for one in queue]
    return {one.id for at, one in enumerate(queue) if any(blocked[:at])}


def _like(stop: Preempt | None, other: Preempt) -> Preempt:
    return replace(other, usage_conditions=stop.usage_conditions) if stop else other


def _wellfounded(oracle: FairOracle, now: PoolSnapshot, stop: Preempt) -> None:
    """The set is another one than the first in order, and lawful all the same."""
    waiter = next(one for one in (*now.waiters, *(hold.owner for hold in now.holds)) if one.id == stop.waiter)
    ids = {victim.request for victim in stop.victims}
    victims = [one for one in now.allocations if one.id in ids]
    assert oracle.fits(waiter, victims)
    assert not oracle.superfluous(waiter, victims)
    assert oracle.lawful(waiter, victims), f"{ids} may not be taken by {waiter.id}"
    most = oracle.max_victims()
    assert most is None or len(victims) <= most


@pytest.mark.timeout(24 * 3600 if LONGER else 120)
@pytest.mark.parametrize("crowded", [False, True], ids=["some", "many"])
@pytest.mark.parametrize("groups", [False, True], ids=["flat", "grouped"])
def test_the_planner_decides_by_the_words(groups: bool, crowded: bool) -> None:
    kinds = set()
    for seed in range(FIRST, FIRST + (LONGER or 150)):
        try:
            kinds.add(check(seen(seed, groups=groups, crowded=crowded)))
        except AssertionError as error:
            raise AssertionError(f"{seed}: {error}") from error
    assert {"plain", "none"} <= kinds
