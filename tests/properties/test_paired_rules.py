"""Rules that exist in Lua and in Python, on the same random states: the ledger on a server, the planner on its snapshot.

The table of `docs/internals/architecture.md` names the test of each pair.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import count
from math import inf
from random import Random

import pytest

from app.domain.plan_steps import Preempt, Trigger, Victim
from app.domain.queue_score import BORROWING_STEP, CLASS_COUNT, MAX_AMOUNT, MAX_SUBMISSIONS, PRIORITY_COUNT
from app.domain.snapshot import Allocation, PoolSnapshot, Waiter
from app.planner.account_tree import POLICY, AccountTree
from app.planner.borrowing import BorrowingIndex
from app.planner.estimates.pool_state import LeavingDeadline, SimulationState
from app.planner.estimates.run_times import RunTimes
from app.planner.estimates.simulation import QueueSimulation
from app.planner.fair_share.pool_shares import FairShareInputs, FairShares
from app.planner.fair_share.satisfaction import satisfaction_ratio
from app.planner.planning_pass import PlanningPass
from app.planner.preemption.attempt import PreemptionAttempt
from app.planner.preemption.budget import PreemptionBudget
from app.planner.preemption.protection import Protection
from app.planner.projection import HoldsAhead, Projection
from app.service.estimate_inputs import build_pool_state
from app.store.connection import RedisClient
from app.store.keys import key
from app.store.queue_status import QueueStatusStore
from tests.properties.random_pools import RandomPool
from tests.support.servers import Servers
from tests.support.world import World, read_key

STATES = 30
NUMBERS = count()
"""Of the workspaces."""
BILLION = 10**9


@pytest.fixture(scope="module")
def client(servers: Servers) -> RedisClient:
    """Return a client of a server on which each random pool has a workspace of its own."""
    return servers.client("embedded")


def random_pool(client: RedisClient, seed: int, **settings: object) -> RandomPool:
    """Return a random pool in a new workspace; the discipline and the order alternate with the seed unless they are given."""
    chosen = {
        "discipline": "classes" if seed % 2 else "reserved",
        "order": "priority_first" if seed % 4 > 1 else "share_first",
    }
    return RandomPool(new_world(client), seed, **{**chosen, **settings})  # type: ignore[arg-type]


def new_world(client: RedisClient) -> World:
    """Return an empty workspace."""
    return World(client, f"w{next(NUMBERS)}")


@pytest.fixture(scope="module")
def states(client: RedisClient) -> list[RandomPool]:
    """Return random pools for the tests that only read."""
    return [random_pool(client, seed) for seed in range(STATES)]


def projection_of(snapshot: PoolSnapshot) -> Projection:
    """Return the planner's view of a snapshot."""
    tree = AccountTree(snapshot.accounts)
    find_protection = Protection(snapshot.settings, snapshot.now_ms).reason
    return Projection(snapshot, tree, BorrowingIndex(snapshot, tree, find_protection, frozenset()))


def all_waiters(snapshot: PoolSnapshot) -> list[Waiter]:
    """Return the waiters of a snapshot, owners of holds included."""
    return [*snapshot.waiters, *(hold.owner for hold in snapshot.holds)]


def is_borrowing(snapshot: PoolSnapshot, waiter: Waiter) -> bool:
    """Return the in-share flag of a queue score, decoded."""
    if snapshot.settings.order == "share_first":
        return waiter.queue_score >= 0
    return (waiter.queue_score + BORROWING_STEP) // MAX_SUBMISSIONS % 2 == 1


def rank_of(snapshot: PoolSnapshot, waiter: Waiter) -> int:
    """Return the rank of a queue score, decoded: the higher the rank, the lower the number."""
    if snapshot.settings.order == "share_first":
        return waiter.queue_score % BORROWING_STEP // MAX_SUBMISSIONS
    return (waiter.queue_score + BORROWING_STEP) // MAX_SUBMISSIONS // 2


def test_the_unused_share_orders_the_queue_as_the_planner_sees_it(states: list[RandomPool]) -> None:
    counts: Counter[bool] = Counter()
    for seed, pool in enumerate(states):
        snapshot = pool.world.snapshot(even_if_idle=True)
        projection = projection_of(snapshot)
        for waiter in all_waiters(snapshot):
            fits = projection.fits_unused_share(waiter, POLICY + waiter.component, HoldsAhead())
            assert is_borrowing(snapshot, waiter) is not fits, f"{seed}: {waiter}"
            counts[fits] += 1
    assert min(counts[True], counts[False]) > STATES / 4, counts


def test_the_unused_share_of_a_preemption_is_the_one_that_the_planner_saw(client: RedisClient) -> None:
    # A preempt step that rests on an unused share is refused for it if, and only if, the waiter does not fit.
    counts: Counter[bool] = Counter()
    for seed in range(STATES):
        pool, random = random_pool(client, seed, queueing="best_effort"), Random(seed)
        snapshot = pool.world.snapshot(even_if_idle=True)
        victims = [each for each in snapshot.allocations if each.preemptible and each.leaving_for is None]
        for waiter in snapshot.waiters if victims else ():
            projection = projection_of(snapshot)
            path = projection.tree.paths[waiter.component][:-1]
            accounts = (path[0],) if not waiter.preemptible else (random.choice(path),)
            victim = random.choice(victims)
            step = Preempt(waiter.id, (Victim(victim.id, victim.fence, Trigger.RECLAIM),), accounts)
            result = pool.world.plan_store.apply_step(pool.world.workspace, snapshot, step)
            if waiter.preemptible:
                fits = _fits_where_reserved(projection, waiter, accounts[0])
            else:
                fits = not projection.is_fixed_share_used_up(waiter, projection.all_holds)
            assert (result.reason != "share") is fits, f"{seed}: {waiter}, {result}"
            counts[fits] += 1
            if result.applied:
                break
    assert min(counts[True], counts[False]) > STATES / 4, counts


def _fits_where_reserved(projection: Projection, waiter: Waiter, account: str) -> bool:
    """True if the waiter fits; the planner never names an unused share to a waiter without share keys, the ledger would
    accept it."""
    if not projection.borrowing.share_amounts(waiter.amounts):
        return True
    return projection.fits_unused_share(waiter, account, projection.all_holds)


def test_a_preemption_suffices_for_the_ledger_as_it_does_for_the_planner(client: RedisClient) -> None:
    # A preempt step is refused as not enough, or as superfluous, by the shortage that the planner computes.
    counts: Counter[str] = Counter()
    for seed in range(STATES):
        pool, random = random_pool(client, seed, queueing="best_effort"), Random(seed)
        snapshot = pool.world.snapshot(even_if_idle=True)
        victims = [each for each in snapshot.allocations if each.preemptible and each.leaving_for is None]
        for waiter in snapshot.waiters if victims else ():
            projection = projection_of(snapshot)
            if projection.is_fixed_share_used_up(waiter, projection.all_holds):
                continue
            chosen = random.sample(victims, random.randint(1, min(4, len(victims))))
            step = Preempt(waiter.id, tuple(Victim(each.id, each.fence, Trigger.PRIORITY) for each in chosen))
            result = pool.world.plan_store.apply_step(pool.world.workspace, snapshot, step)
            assert result.reason == _refusal_of_set(projection, waiter, chosen), f"{seed}: {waiter}, {result}"
            counts[result.reason] += 1
            if result.applied:
                break
    assert min(counts[""], counts["not enough"], counts["superfluous"]) > STATES / 4, counts


def _refusal_of_set(projection: Projection, waiter: Waiter, victims: list[Allocation]) -> str:
    deficits, paths = projection.deficits(waiter, projection.all_holds), projection.tree.paths

    def covers(members: list[Allocation]) -> bool:
        return all(
            sum(each.amounts.get(resource, 0) for each in members if account in paths[each.component]) >= units
            for (account, resource), units in deficits.items()
        )

    if not covers(victims):
        return "not enough"
    is_superfluous = any(covers([other for other in victims if other is not each]) for each in victims)
    return "superfluous" if is_superfluous else ""


def test_the_pauses_of_a_pool_are_those_of_the_planner(client: RedisClient) -> None:
    counts: Counter[str] = Counter()
    for seed in range(20):
        world, random = new_world(client), Random(seed)
        world.pool(gpu=12, settings={"max_preemptions_per_minute": 3, "backoff_s": 10, "grace_s": 600, "patience_s": None})
        world.policy("low", priority=1)
        world.policy("high", priority=9)
        for component in ("low", "high"):
            for _ in range(12):
                world.submit(component, gpu=1)
        for _ in range(15):
            world.clock.advance(random.choice((1, 9, 10, 11, 30)))
            snapshot = world.snapshot()
            budget = PreemptionBudget(snapshot)
            victim = next(each for each in snapshot.allocations if each.leaving_for is None)
            step = Preempt(snapshot.waiters[0].id, (Victim(victim.id, victim.fence, Trigger.PRIORITY),))
            expected = "budget" if budget.max_victims_now == 0 else "backoff" if budget.is_backing_off else ""
            assert world.apply_step(step, snapshot).reason == expected, f"{seed}: {snapshot.now_ms}"
            counts[expected] += 1
    assert min(counts[""], counts["budget"], counts["backoff"]) > 20, counts


def test_a_limit_as_large_as_the_pool_is_none_for_both(states: list[RandomPool]) -> None:
    counts: Counter[str] = Counter()
    for seed, pool in enumerate(states):
        tree = AccountTree(pool.world.snapshot(even_if_idle=True).accounts)
        statuses = QueueStatusStore(pool.world.client, pool.world.clock)
        for request in pool.requests("queued"):
            for status in statuses.list_statuses(pool.world.workspace, request.id)[1]:
                for usage in status.usages:
                    if usage.key in tree.pool.limit:
                        limit = tree.limit(usage.account, usage.key)
                        assert usage.limit == limit, f"{seed}: {usage}"
                        counts[_kind_of_limit(tree, usage.account, usage.key)] += 1
    assert min(counts["none"], counts["as large as the pool"], counts["smaller"]) > STATES / 4, counts


def _kind_of_limit(tree: AccountTree, account: str, key: str) -> str:
    limit = tree.accounts[account].limit.get(key)
    if limit is None:
        return "none"
    return "smaller" if limit < tree.pool.limit[key] else "as large as the pool"


def test_the_rank_of_the_queue_is_the_rank_of_the_rules(states: list[RandomPool]) -> None:
    counts: Counter[tuple[bool, bool]] = Counter()
    for seed, pool in enumerate(states):
        snapshot = pool.world.snapshot(even_if_idle=True)
        planning_pass = PlanningPass(snapshot, frozenset())
        projection = planning_pass._projection
        for waiter in all_waiters(snapshot):
            attempt = PreemptionAttempt(planning_pass._index, waiter, projection.all_holds, {})
            assert rank_of(snapshot, waiter) == _packed_rank(snapshot, projection.tree, waiter)
            for other in all_waiters(snapshot):
                view = attempt.preemptor_view(other.component)
                not_higher = other.preemption_class < view.classes_not_above
                assert not_higher is (rank_of(snapshot, other) >= rank_of(snapshot, waiter)), f"{seed}: {waiter}, {other}"
                lower = other.preemption_class < view.classes_below
                if snapshot.settings.discipline == "reserved":  # in `classes` the rules go by the class alone
                    assert lower is (rank_of(snapshot, other) > rank_of(snapshot, waiter)), f"{seed}: {waiter}, {other}"
                counts[not_higher, lower] += 1
    assert min(counts[True, True], counts[True, False], counts[False, False]) > STATES / 4, counts


def _packed_rank(snapshot: PoolSnapshot, tree: AccountTree, waiter: Waiter) -> int:
    inverse_class = CLASS_COUNT - 1 - waiter.preemption_class
    inverse_priority = PRIORITY_COUNT - 1 - tree.policy(waiter.component).priority
    if snapshot.settings.discipline == "classes":
        return inverse_class * PRIORITY_COUNT + inverse_priority
    return inverse_priority * CLASS_COUNT + inverse_class


def test_the_satisfaction_ratio_of_the_ledger_is_that_of_the_planner(client: RedisClient) -> None:
    kinds: Counter[str] = Counter()
    for seed in range(STATES):
        pool = random_pool(client, seed, discipline="fair_share", fair_share_tolerance=1, starvation_timeout_s=600)
        world = pool.world
        snapshot = world.snapshot(even_if_idle=True)
        inputs = FairShareInputs(snapshot, AccountTree(snapshot.accounts))
        shares = FairShares(inputs, inputs.usage)
        scores: dict[str, float] = dict(read_key(world.client, key("pool_satisfaction", world.workspace, "p")))
        for component in inputs.usage:
            account = snapshot.accounts[POLICY + component]
            if not account.published.fair_shares:
                continue  # without demand no share is published, and no request waits that it could order
            ratio = satisfaction_ratio(shares.account(account.name), shares.scale)
            kinds[_compare_ratio(ratio, int(scores[component]), f"{seed}: {component}")] += 1
    assert set(kinds) == {"infinite", "zero", "below", "full"}, kinds


def _compare_ratio(ratio: Fraction | None, score: int, message: str) -> str:
    """Raise unless they are equal up to rounding: a published share is cut to 10^-12, a score to 10^-9."""
    if ratio is None:
        assert score == MAX_AMOUNT, message
        return "infinite"
    rounding = Fraction(2, BILLION) * max(Fraction(1), ratio)
    assert abs(Fraction(score, BILLION) - ratio) <= rounding, f"{message}: {score}, {float(ratio)}"
    return "zero" if ratio == 0 else "below" if ratio < 1 else "full"


def test_the_grant_loop_of_an_estimate_grants_what_the_ledger_grants(client: RedisClient) -> None:
    # One allocation ends: the waiters that start in the simulation, in order, are those that the ledger grants.
    counts: Counter[int] = Counter()
    features: Counter[str] = Counter()
    for seed in range(80):
        pool = random_pool(client, seed, distinct_ranks=True, order="priority_first")
        world, running = pool.world, pool.requests("allocated")
        if not running:
            continue
        released = pool.random.choice(running)
        state, waiter_ids = _state_in_which_ends(pool, released.id)
        simulation = QueueSimulation(state, len(state.waiters), Random(seed), slow_victims=True)
        starts = list(simulation.starts())
        last_event = world.ledger.get_last_event_id(world.workspace)
        world.release(released)
        events = world.ledger.read_events(world.workspace, last_event, 1000)
        granted = [event.request for event in events if event.event == "allocated"]
        assert [waiter_ids[index] for index, _ in starts] == granted, f"{seed}"
        assert all(start.seconds > 0 for _, start in starts), f"{seed}: a grantable request waited"
        counts[len(granted)] += 1
        if granted:
            features["holds"] += bool(state.holds)
            features["patience hold"] += state.patience_hold is not None
            features["strict"] += state.is_strict
            features["fixed share"] += any("fixed" in path for waiter in state.waiters for path in waiter.path)
    assert {0, 1, 2} <= set(counts), counts
    assert min(features[name] for name in ("holds", "patience hold", "strict", "fixed share")) >= 3, features


def _state_in_which_ends(pool: RandomPool, released: str) -> tuple[SimulationState, list[str]]:
    """Return the input of the simulation if one allocation ends and nothing else ever does; and the waiters' ids."""
    world = pool.world
    snapshot = world.snapshot(even_if_idle=True)
    waiters = [world.get(request) for request in world.queue()]
    victims = {each.id: world.get(each.id) for each in snapshot.allocations if each.leaving_for}
    nothing = RunTimes({})
    state = build_pool_state(snapshot, waiters, victims, {}, nothing)
    allocations = [
        replace(
            allocation,
            walltime_s=allocation.age_s + 60 if each.id == released else None,
            leaving=allocation.leaving and LeavingDeadline(inf, inf, allocation.leaving.hold),
        )
        for each, allocation in zip(snapshot.allocations, state.allocations, strict=True)
    ]
    return replace(state, allocations=allocations), [request.id for request in waiters]
