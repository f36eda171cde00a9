"""The order of a pool with fair shares: the least satisfied policy first, judged again after every grant; then class, then
age."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.domain.models import Request
from app.domain.plan_steps import AccountUpdate, Publication
from app.domain.queue_score import SHARE_UNITS
from app.domain.snapshot import PublishedStatus
from app.service.reconcile import Reconciler
from app.store.connection import RedisClient
from app.store.keys import key, prefix
from tests.support.audit_findings import findings
from tests.support.world import World, full_component

FAIR = {"discipline": "fair_share", "patience_s": None}


def publish(world: World, pool: str = "p", sated: dict[str, tuple[str, ...]] | None = None, **shares: Any) -> None:
    """Publish made-up shares: `publish(world, a=0.5)` of gpu, `a={"gpu": 0.5, "mem": 0}` of several keys."""
    rows = []
    for name, share in shares.items():
        fair = share if isinstance(share, dict) else {"gpu": share}
        fields = [(f"fair_share:{key}", str(round(part * SHARE_UNITS))) for key, part in fair.items()]
        fields += [(f"demand_met:{key}", "1") for key in (sated or {}).get(name, ())]
        rows.append(AccountUpdate(f"policy:{full_component(name)}", tuple(fields), ()))
    snapshot = world.snapshot(pool, even_if_idle=True)
    assert world.plan_store.write_fair_shares(world.workspace, snapshot, Publication(tuple(rows), is_watched=False)).applied


def published_status(world: World, name: str, pool: str = "p") -> PublishedStatus:
    """Return the published shares of a policy."""
    return world.snapshot(pool, even_if_idle=True).accounts[f"policy:{full_component(name)}"].published


def reconcile(world: World) -> None:
    """Reconcile until no decision is left."""
    while Reconciler(world.plan_store, world.ledger).run(world.workspace):
        pass


def granted_names(world: World, **requests: Request) -> list[str]:
    """Return the granted requests by name, in order of grant."""
    fences = {name: world.get(each).fence for name, each in requests.items() if world.get(each).status == "allocated"}
    return sorted(fences, key=lambda name: fences[name] or 0)


def queue_names(world: World, pool: str = "p", /, **requests: Request) -> list[str]:
    """Return the queue by names; check that its pages agree with the position of each request."""
    by_id = {request.id: name for name, request in requests.items()}
    queue = world.queue(pool)
    for count in (1, 2, 3):
        ids, last = world.ledger.list_queue(world.workspace, pool, count=count)
        while last is not None:
            more, last = world.ledger.list_queue(world.workspace, pool, last, count=count)
            ids += more
        assert ids == queue, f"by pages of {count}"
    assert [world.get(each).position[pool] for each in queue] == list(range(1, len(queue) + 1))
    return [by_id[each] for each in queue]


def full_pool(world: World, gpu: int, *teams: str, **settings: Any) -> Request:
    """Create a pool that another policy holds, and policies that may wait for it."""
    world.pool(gpu=gpu, settings={**FAIR, **settings})
    for team in (*teams, "holder"):
        world.policy(team)
    return world.submit("holder", gpu=gpu)


def test_the_least_satisfied_is_served_first_and_that_is_seen_anew_after_each_grant(world: World) -> None:
    holder = full_pool(world, 8, "a", "b", "c")
    waiting = {name: world.submit(name[0], gpu=1) for name in ("b1", "c1", "a1", "b2", "c2", "a2", "a3", "a4")}
    publish(world, a=0.5, b=0.25, c=0.25)
    world.release(holder)
    assert granted_names(world, **waiting) == ["b1", "c1", "a1", "a2", "b2", "c2", "a3", "a4"]


def test_what_is_shown_is_the_order_of_the_next_grant(world: World) -> None:
    holder = full_pool(world, 4, "a", "b")
    waiting = {name: world.submit(name[0], gpu=2) for name in ("a1", "a2", "b1", "b2")}
    publish(world, a=0.5, b=0.5)
    assert queue_names(world, **waiting) == ["a1", "a2", "b1", "b2"]
    world.release(holder)
    assert granted_names(world, **waiting) == ["a1", "b1"]
    assert queue_names(world, **waiting) == ["a2", "b2"]
    world.release(waiting["b1"])
    assert granted_names(world, **waiting) == ["a1", "b2"]


def test_until_shares_are_published_it_is_use_by_weight_that_counts(world: World) -> None:
    holder = full_pool(world, 6, "x", "y")
    world.policy("x", weight=3)
    waiting = {name: world.submit(name[0], gpu=1) for name in ("y1", "y2", "y3", "x1", "x2", "x3", "x4", "x5", "x6")}
    world.release(holder)
    assert granted_names(world, **waiting) == ["y1", "x1", "x2", "x3", "y2", "x4"]


def test_alike_satisfied_it_is_class_then_age(world: World) -> None:
    holder = full_pool(world, 6, "a", "b", "c")
    waiting = {
        f"{component}{each}": world.submit(component, gpu=1, preemption_class=each)
        for component, each in (("a", 5), ("b", 5), ("b", 9), ("c", 0), ("a", 10))
    }
    publish(world, a=0.5, b=0.5, c=0.5)
    assert queue_names(world, **waiting) == ["a10", "b9", "a5", "b5", "c0"]
    world.release(holder)
    assert granted_names(world, **waiting) == ["a10", "b9", "c0", "a5", "b5"]


def test_a_class_does_not_help_a_more_satisfied_policy(world: World) -> None:
    world.pool(gpu=4, settings=FAIR)
    world.policy("a")
    world.policy("b")
    world.submit("a", gpu=1)
    last = world.submit("b", gpu=3)
    waiting = {"a10": world.submit("a", gpu=1, preemption_class=10), "b0": world.submit("b", gpu=1, preemption_class=0)}
    publish(world, a=0.25, b=0.75)
    assert queue_names(world, **waiting) == ["a10", "b0"]
    publish(world, a=0.25, b=1)
    assert queue_names(world, **waiting) == ["b0", "a10"]
    world.release(last)
    assert granted_names(world, **waiting) == ["b0", "a10"]


def test_policies_without_a_share_come_last_by_class_and_age(world: World) -> None:
    world.pool(gpu=9, settings=FAIR)
    for team in ("a", "b", "c", "holder"):
        world.policy(team)
    world.submit("c", gpu=1)
    holder = world.submit("holder", gpu=8)
    waiting = {name: world.submit(name[0], gpu=1) for name in ("a1", "b1", "c1")}
    waiting["b2"] = world.submit("b", gpu=1, preemption_class=6)
    publish(world, a=0, b=0, c=1 / 9)
    assert queue_names(world, **waiting) == ["c1", "b2", "a1", "b1"]
    world.release(holder)
    assert granted_names(world, **waiting) == ["c1", "b2", "a1", "b1"]


def test_policies_above_their_share_come_later_by_their_excess(world: World) -> None:
    world.pool(gpu=8, settings=FAIR)
    for team, gpu in (("a", 3), ("b", 2), ("c", 1), ("holder", 2)):
        world.policy(team)
        world.submit(team, gpu=gpu)
    waiting = {name: world.submit(name, gpu=2) for name in ("a", "b", "c")}
    publish(world, a=0.25, b=0.125, c=0.5)
    assert queue_names(world, **waiting) == ["c", "a", "b"]
    publish(world, a=0.125, b=0.125, c=0.0625)
    assert queue_names(world, **waiting) == ["b", "c", "a"]


def test_an_excess_of_one_key_counts_though_another_is_short(world: World) -> None:
    world.pool(gpu=8, mem=8, settings=FAIR)
    holders: tuple[tuple[str, dict[str, Any]], ...] = (("a", {"gpu": 4}), ("b", {"mem": 6}), ("holder", {"gpu": 4, "mem": 2}))
    for team, asks in holders:
        world.policy(team)
        world.submit(team, **asks)
    waiting = {"a": world.submit("a", mem=1), "b": world.submit("b", gpu=1, mem=1)}
    due: dict[str, Any] = {"a": {"gpu": 0.25, "mem": 0.5}, "b": {"gpu": 0.5, "mem": 0.5}}
    publish(world, sated={"a": ("gpu",)}, **due)
    assert queue_names(world, **waiting) == ["b", "a"], "3/2, then 2"


def test_a_key_with_its_whole_demand_due_counts_only_if_it_is_the_only_one(world: World) -> None:
    world.pool(gpu=8, mem=8, settings=FAIR)
    holders: tuple[tuple[str, dict[str, Any]], ...] = (
        ("a", {"gpu": 2}),
        ("b", {"gpu": 4, "mem": 2}),
        ("c", {"mem": 2}),
        ("holder", {"mem": 4, "gpu": 2}),
    )
    for team, asks in holders:
        world.policy(team)
        world.submit(team, **asks)
    waiting = {team: world.submit(team, gpu=1, mem=1) for team in ("b", "a", "c")}
    due: dict[str, Any] = {"a": {"gpu": 0.25, "mem": 0.5}, "b": {"gpu": 0.5, "mem": 0.5}, "c": {"gpu": 0.5, "mem": 0.25}}
    publish(world, **due)
    assert queue_names(world, **waiting) == ["b", "a", "c"], "the most of any key: 1, 1, 1"
    publish(world, sated={"a": ("gpu",), "b": ("gpu",)}, **due)
    assert queue_names(world, **waiting) == ["a", "b", "c"], "0 of mem, 1/2 of mem, 1 of mem"
    publish(world, sated={"b": ("gpu", "mem"), "c": ("gpu", "mem")}, **due)
    assert queue_names(world, **waiting) == ["a", "c", "b"], "0 of mem, 0 of gpu (the least, younger), 1/2 of mem"


def test_a_policy_short_only_of_keys_without_a_share_has_satisfaction_zero(world: World) -> None:
    world.pool(gpu=4, mem=4, settings=FAIR)
    for team in ("a", "b"):
        world.policy(team)
    world.submit("a", mem=2)
    world.submit("b", gpu=1)
    world.submit("b", gpu=3)
    waiting = {"b": world.submit("b", gpu=1), "a": world.submit("a", gpu=1)}
    publish(world, sated={"a": ("mem",)}, a={"gpu": 0, "mem": 0.5}, b={"gpu": 1, "mem": 0})
    assert queue_names(world, **waiting) == ["a", "b"]


def test_new_shares_count_at_once(world: World) -> None:
    # Strict: the publication itself grants the first request by the new shares.
    world.pool(gpu=4, settings={**FAIR, "queueing": "strict"})
    for team in ("a", "b"):
        world.policy(team)
        world.submit(team, gpu=1)
    big, small = world.submit("a", gpu=3), world.submit("b", gpu=1)
    assert world.status(big, small) == ["queued", "queued"]
    publish(world, a=0.75, b=0.25)
    assert world.status(big, small) == ["queued", "queued"]
    publish(world, a=0.25, b=0.75)
    assert world.status(big, small) == ["queued", "allocated"]


def test_shares_are_published_for_demand_and_removed_without_it(world: World) -> None:
    holder = full_pool(world, 4, "a", "b")
    waiting = [world.submit("a", gpu=2), world.submit("b", gpu=1)]
    reconcile(world)
    fair = {team: published_status(world, team).fair_shares for team in ("a", "b", "holder")}
    assert fair == {"a": {"gpu": SHARE_UNITS * 3 // 8}, "b": {"gpu": SHARE_UNITS // 4}, "holder": {"gpu": SHARE_UNITS * 3 // 8}}
    assert [published_status(world, name).demand_met for name in "ab"] == [frozenset(), frozenset({"gpu"})]
    for each in (*waiting, holder):
        world.drop(each)
    reconcile(world)
    assert [published_status(world, team).fair_shares for team in ("a", "b", "holder")] == [{}, {}, {}]


def pool_with_newcomer(world: World, **settings: Any) -> tuple[Request, Request]:
    """Fill most of the pool before any request waits; then queue another policy's request, and one of the first of a high
    class."""
    world.pool(gpu=4, settings={**FAIR, **settings})
    world.policy("rich")
    world.policy("poor")
    world.submit("rich", gpu=3)
    waits = world.submit("poor", gpu=2)
    world.pass_time(2)
    return waits, world.submit("rich", gpu=1, preemption_class=9)


@pytest.mark.parametrize("settings", [{"queueing": "strict"}, {"patience_s": 1}])
def test_a_returning_policy_is_ordered_by_its_present_use(world: World, settings: dict[str, Any]) -> None:
    # Its use was not recorded while no request waited.
    waits, came = pool_with_newcomer(world, **settings)
    assert (world.status(waits, came), queue_names(world, waits=waits, came=came)) == (["queued"] * 2, ["waits", "came"])


def test_a_policy_with_new_grants_is_ordered_by_its_present_use(world: World) -> None:
    world.pool(gpu=4, settings={**FAIR, "queueing": "strict"})
    for team in ("a", "b"):
        world.policy(team)
    first, second = world.submit("a", gpu=4), world.submit("a", gpu=1)
    publish(world, a=0.5, b=0.5)
    world.release(first)
    world.submit("a", gpu=2)
    assert world.status(second) == ["allocated"]
    waits = world.submit("b", gpu=2)
    came = world.submit("a", gpu=1, preemption_class=9)
    assert world.status(waits, came) == ["queued", "queued"]


# requests that pass others


def test_strict_the_least_satisfied_is_first_and_is_never_passed(world: World) -> None:
    world.pool(gpu=8, settings={**FAIR, "queueing": "strict"})
    for team in ("a", "b", "c"):
        world.policy(team)
    a, b, c = world.submit("a", gpu=4), world.submit("b", gpu=2), world.submit("c", gpu=2)
    waiting = {"a": world.submit("a", gpu=1), "b": world.submit("b", gpu=2), "c": world.submit("c", gpu=3)}
    publish(world, a=0.5, b=0.25, c=0.25)
    assert queue_names(world, **waiting) == ["a", "b", "c"]
    world.release(b)
    assert granted_names(world, **waiting) == ["b"], "the policy without units is first"
    world.release(c)
    assert granted_names(world, **waiting) == ["b"], "another one is, which does not fit yet, and the elder does not pass it"
    assert queue_names(world, **waiting) == ["c", "a"]
    world.release(a)
    assert granted_names(world, **waiting) == ["b", "a", "c"], "now both have nothing, and age counts"


def test_strict_a_waiter_at_its_limit_blocks_no_other(world: World) -> None:
    world.pool(gpu=8, settings={**FAIR, "queueing": "strict"})
    world.policy("a", limit={"gpu": 2})
    world.policy("b")
    a = world.submit("a", gpu=2)
    capped = world.submit("a", gpu=1)
    world.submit("b", gpu=4)
    more = world.submit("b", gpu=2)
    assert world.status(capped, more) == ["queued", "allocated"]
    world.release(a)
    assert world.status(capped) == ["allocated"]


def test_the_least_satisfied_waiter_without_patience_gets_the_hold(world: World) -> None:
    world.pool(gpu=8, settings={**FAIR, "patience_s": 1})
    for team, gpu in (("a", 4), ("b", 1)):
        world.policy(team)
        world.submit(team, gpu=gpu)
    elder, poor = world.submit("a", gpu=4, preemption_class=9), world.submit("b", gpu=4)
    publish(world, a=0.5, b=0.5)
    world.pass_time(2)
    assert world.status(elder, poor) == ["queued", "queued"]
    assert [hold.request for hold in world.get_pool().holds] == [poor.id]


def test_a_hold_of_patience_binds_only_those_behind_its_owner(world: World) -> None:
    world.pool(gpu=8, settings={**FAIR, "patience_s": 1})
    for team in ("a", "b", "c"):
        world.policy(team)
    a, b, c = world.submit("a", gpu=2), world.submit("b", gpu=3), world.submit("c", gpu=1)
    big = world.submit("a", gpu=5)
    publish(world, a=0.25, b=0.25, c=0.5)
    world.pass_time(2)
    assert [hold.request for hold in world.get_pool().holds] == [big.id]
    poor, rich = world.submit("c", gpu=1), world.submit("b", gpu=1)
    assert world.status(poor, rich) == ["allocated", "queued"], "1/4 and 1 before 5/4"
    world.release(b)
    assert world.status(rich) == ["allocated"], "it has less than the owner now"
    world.release(a)
    assert world.status(big) == ["allocated"]
    world.release(c)
    assert world.used() == {"gpu": 7}


def test_a_waiter_behind_a_hold_is_granted_when_new_shares_order_it_first(world: World) -> None:
    world.pool(gpu=4, settings={**FAIR, "patience_s": 1})
    for team in ("a", "b"):
        world.policy(team)
        world.submit(team, gpu=1)
    big = world.submit("a", gpu=3)
    world.pass_time(2)
    small = world.submit("b", gpu=1)
    assert world.status(big, small) == ["queued", "queued"]
    publish(world, a=0.25, b=0.75)
    assert world.status(big, small) == ["queued", "allocated"]


def test_a_request_that_ends_in_time_passes_a_hold(world: World) -> None:
    world.pool(gpu=4, settings={**FAIR, "patience_s": 1})
    for team in ("a", "b"):
        world.policy(team)
    world.submit("b", gpu=2, walltime_s=600)
    big = world.submit("a", gpu=4)
    world.pass_time(2)
    long, short = world.submit("b", gpu=1, walltime_s=900), world.submit("b", gpu=1, walltime_s=60)
    assert world.status(big, long, short) == ["queued", "queued", "allocated"]
    queued = world.submit("b", gpu=2, walltime_s=30)
    world.release(short)
    assert world.status(queued, long) == ["allocated", "queued"]


def test_fixed_work_waits_for_its_share_and_blocks_no_other(world: World) -> None:
    world.pool(gpu=4, settings=FAIR)
    world.policy("a", reserved={"gpu": 2})
    world.policy("b", reserved={"gpu": 1})
    holder = world.submit("a", gpu=2, preemptible=False)
    waiting = {"f": world.submit("a", gpu=1, preemptible=False)}
    rest = world.submit("b", gpu=2)
    waiting |= {"p": world.submit("a", gpu=1), "g": world.submit("b", gpu=1, preemptible=False)}
    world.release(rest)
    assert granted_names(world, **waiting) == ["g", "p"]
    world.release(holder)
    assert granted_names(world, **waiting) == ["g", "p", "f"]


def test_a_limit_of_a_group_keeps_its_own_and_the_least_satisfied_of_them_comes_first(world: World) -> None:
    world.pool(gpu=8, settings=FAIR)
    world.group("g", limit={"gpu": 3})
    for team in ("a", "b"):
        world.policy(team, group="g")
    world.policy("c")
    holder = world.submit("a", gpu=3)
    waiting = {name: world.submit(name[0], gpu=1) for name in ("a1", "b1", "b2", "c1")}
    assert granted_names(world, **waiting) == ["c1"]
    publish(world, a=0.125, b=0.25)
    world.release(holder)
    assert granted_names(world, **waiting) == ["c1", "a1", "b1", "b2"]
    world.group("g", limit={"gpu": 8})
    more = [world.submit("a", gpu=1) for _ in range(4)]
    assert world.status(*more) == ["allocated"] * 4


def test_several_pools_each_have_an_order_of_their_own(world: World) -> None:
    for pool in ("p", "q"):
        world.pool(pool, gpu=2, settings=FAIR)
        world.policy("a", pool, priority=1 if pool == "p" else 0)
        world.policy("b", pool, priority=1 if pool == "p" else 0)
    allocation = {pool: world.submit("a", gpu=2) for pool in ("p", "q")}
    assert [each.pool for each in allocation.values()] == ["p", "q"]
    waiting = {name: world.submit(name[0], gpu=1) for name in ("a1", "a2", "b1", "b2")}
    publish(world, "p", a=0.5, b=0)
    publish(world, "q", a=0.25, b=1)
    assert queue_names(world, "p", **waiting) == ["a1", "a2", "b1", "b2"], "2, then infinite"
    assert queue_names(world, "q", **waiting) == ["b1", "b2", "a1", "a2"]
    world.release(allocation["q"])
    assert granted_names(world, **waiting) == ["a1", "b1"], "b1 at 0 with a1 the elder; then a has all that is due, b has not"
    assert queue_names(world, "p", **waiting) == ["a2", "b2"]
    assert queue_names(world, "q", **waiting) == ["b2", "a2"]
    world.release(allocation["p"])
    assert granted_names(world, **waiting) == ["a1", "b1", "a2", "b2"]


# changes


def submit_many(world: World, count: int = 12) -> list[Request]:
    """Submit many waiters, of several policies and classes, in one pool."""
    for team, gpu in (("a", 2), ("b", 0), ("c", 0)):
        world.policy(team, reserved={"gpu": gpu}, priority=gpu)
    world.submit("a", gpu=4)
    world.submit("b", gpu=2)
    return [world.submit("abc"[index % 3], gpu=1 + index % 2 * 4, preemption_class=index % 5 + 3) for index in range(count)]


@pytest.mark.parametrize("settings", [{"queueing": "strict"}, {}, {"patience_s": 0}])
@pytest.mark.backends("fake", "embedded")  # hundreds of calls in parts of one, which the scripts count
def test_switching_back_and_forth_loses_no_waiter_and_leaves_no_data(client: RedisClient, settings: dict[str, Any]) -> None:
    world = World(client, chunk=1)
    world.pool(gpu=6, settings={"patience_s": None, **settings})
    requests = submit_many(world)
    world.pass_time(1)
    before = {each.id: world.get(each) for each in requests}
    queue, events = world.queue(), len(world.events())
    for discipline in ("fair_share", "classes", "fair_share", "reserved"):
        world.update_pool(settings={"discipline": discipline})
        assert findings(world) == []
        assert sorted(world.queue()) == sorted(queue)
        assert [world.get(each).position["p"] for each in world.queue()] == list(range(1, len(queue) + 1))
        noted = world.client.exists(key("pool_satisfaction", "test", "p"))
        assert noted == (discipline == "fair_share")
        if discipline == "fair_share":
            reconcile(world)
            assert findings(world) == []
    assert len(world.events()) == events, "no request was preempted, granted or lost"
    assert {each.id: world.get(each) for each in requests} == before
    assert world.queue() == queue
    reconcile(world)
    assert (published_status(world, "a").fair_shares, published_status(world, "a").demand_met) == ({}, frozenset())
    assert not [spot for spot in world.client.hvals(key("pool_parked", "test", "p")) if "@" in spot]


@pytest.mark.parametrize("settings", ['{"queueing":"strict"}', '{"discipline":"fair_share"}', '{"patience_s":"1"}'])
def test_a_request_submitted_during_a_switch_is_ordered_after_it(client: RedisClient, settings: str) -> None:
    world = World(client, chunk=1)
    world.pool(gpu=6, settings={"patience_s": None})
    requests = submit_many(world)
    assert world.call("update_pool", name="p", description="", capacity="", settings=settings).fields["more"] == "1"
    came = world.submit("c", gpu=1)
    while world.ledger.resume_unfinished(world.workspace):
        pass
    assert findings(world) == []
    assert came.status == "queued"
    assert sorted(world.queue()) == sorted([came.id, *(each.id for each in requests)])


def test_a_request_submitted_during_unfinished_work_gets_its_later_state(world: World) -> None:
    # Its work is unfinished. Its coming does not begin that work, because a grant would then contradict the answer.
    world.pool(gpu=2, settings={**FAIR, "patience_s": 1})
    for team in ("a", "b"):
        world.policy(team, limit={"gpu": 2})
    world.submit("a", gpu=2)
    for gpu in (1, 2):
        world.submit("a", gpu=gpu)
    world.pass_time(2)
    world.call("update_pool", chunk=1, name="p", description="", capacity="gpu=4", settings="{}")
    while "reviewing" in world.client.hgetall(key("pool", "test", "p")):
        assert world.call("resume_unfinished", chunk=1).fields["more"] == "1"
    spec = f"component {full_component('b')} resources gpu=1,step_run=1 preemptible 1 class 5 checkpoint none retries 3 bytes 9"
    asks = json.dumps([{"id": "came", "fields": spec.split()}])
    ((_, outcome),) = world.call("submit", chunk=1, specs=asks, remember_s=60, with_status=False).fields["outcomes"]
    assert "queued" in outcome
    assert world.status(world.get("came")) == ["queued"]
    while world.ledger.resume_unfinished(world.workspace):
        pass
    assert world.status(world.get("came")) == ["allocated"]


def test_a_pool_that_is_emptied_and_deleted_leaves_no_key(world: World) -> None:
    world.pool(gpu=6, settings={**FAIR, "queueing": "strict"})
    world.group("g")
    requests = submit_many(world, 6)
    world.policy("d", group="g")
    reconcile(world)
    for waiter in requests:
        world.drop(waiter)
    for holder in dict(world.client.hgetall(key("pool_allocation_records", "test", "p"))):
        world.ledger.drop(world.workspace, str(holder))
    for team in ("a", "d"):
        world.ledger.delete_policy(world.workspace, "p", full_component(team))
        assert world.client.zscore(key("pool_satisfaction", "test", "p"), full_component(team)) is None
    world.ledger.delete_pool(world.workspace, "p")
    assert [name for name in world.state() if name.startswith(prefix("test") + "pool:")] == []
