"""Evictions for a limit, and the published statuses: the rules as small pools."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.queue_score import SHARE_UNITS
from tests.unit.planner.builders import NOW_MS, PoolBuilder, a_pool
from tests.unit.planner.fair_share.builders import STARVING, FairShareBuilder, a_fair_share_pool

LATE: dict[str, Any] = {"over_s": 30}
"""The status of an account that has been over its limit for `over_limit_after_s`."""


def over(*units: int, limit: int = 2, **numbers: Any) -> FairShareBuilder:
    """Return a pool in which `a` holds these amounts, and now has a limit of two units."""
    return a_fair_share_pool(gpu=20).policy("a", limit={"gpu": limit}, **(LATE | numbers)).runs_several("a", *units)


# over a limit


def test_the_newest_go_until_it_is_over_its_limit_no_more() -> None:
    assert over(1, 1, 1, 1).evicted_victims() == {"a4": "policy:a", "a3": "policy:a"}
    assert over(1, 1).evicted_victims() == {}


def test_those_that_turn_out_superfluous_stay() -> None:
    assert set(over(4, 3, 1, limit=6).evicted_victims()) == {"a2"}


@pytest.mark.parametrize(("over_s", "goes"), [(None, False), (29, False), (30, True)])
def test_they_have_some_time(over_s: int | None, goes: bool) -> None:
    assert bool(over(1, 1, 1, over_s=over_s).evicted_victims()) is goes


@pytest.mark.parametrize(
    ("pool", "group", "policy", "over_s", "goes"),
    [
        ({"over_limit_after_s": 60}, {}, {}, 59, False),
        ({"over_limit_after_s": 60}, {}, {}, 60, True),
        ({"over_limit_after_s": 60}, {"over_limit_after_s": 10}, {}, 10, True),
        ({"over_limit_after_s": 60}, {"over_limit_after_s": 10}, {"over_limit_after_s": 20}, 19, False),
        ({}, {}, {"over_limit_after_s": 0}, None, True),
        ({"over_limit": "keep"}, {}, {}, 999, False),
        ({"over_limit": "keep"}, {"over_limit": "evict"}, {}, 30, True),
        ({}, {"over_limit": "keep"}, {}, 999, False),
        ({}, {"over_limit": "keep"}, {"over_limit": "evict"}, 30, True),
    ],
)
def test_the_nearest_account_says_how_long_and_whether(
    pool: dict[str, Any], group: dict[str, Any], policy: dict[str, Any], over_s: int | None, goes: bool
) -> None:
    builder = a_fair_share_pool(gpu=20).with_settings(**pool).group("g", **group)
    builder.policy("a", "g", limit={"gpu": 2}, over_s=over_s, **policy).runs_several("a", 1, 1, 1)
    assert bool(builder.evicted_victims()) is goes


@pytest.mark.parametrize("discipline", ["reserved", "classes"])
def test_in_other_disciplines_it_is_kept_unless_they_say_so(discipline: str) -> None:
    assert over(1, 1, 1).with_settings(discipline=discipline).evicted_victims() == {}
    assert set(over(1, 1, 1).with_settings(discipline=discipline, over_limit="evict").evicted_victims()) == {"a3"}


@pytest.mark.parametrize(
    ("ask", "terms"),
    [({"preemptible": False}, {}), ({"preemption_class": 10}, {}), ({"ran_s": 59}, {"min_runtime_s": 60})],
    ids=["fixed", "class 10", "just started"],
)
def test_the_protected_stay(ask: dict[str, Any], terms: dict[str, Any]) -> None:
    pool = over(1, 1).with_settings(**terms).runs("v", "a", gpu=1, **ask)
    assert set(pool.evicted_victims()) == {"a2"}


def test_as_many_go_as_may_though_it_does_not_suffice() -> None:
    pool = (
        a_fair_share_pool(gpu=20)
        .policy("a", limit={"gpu": 2}, **LATE)
        .runs("fixed", "a", gpu=4, preemptible=False)
        .runs_several("a", 1, 1)
    )
    assert set(pool.evicted_victims()) == {"a1", "a2"}


def test_an_allocation_without_the_exceeded_key_stays() -> None:
    pool = (
        a_fair_share_pool(gpu=20, mem=9).policy("a", limit={"gpu": 2}, **LATE).runs_several("a", 1, 1, 1).runs("v", "a", mem=4)
    )
    assert set(pool.evicted_victims()) == {"a3"}


def test_no_more_is_evicted_than_helps() -> None:
    # Its fixed work alone exceeds the memory limit; three gpus must go, and one allocation holds them.
    pool = a_fair_share_pool(gpu=20, mem=9).policy("a", limit={"gpu": 6, "mem": 4}, **LATE)
    pool.runs("fixed", "a", mem=5, preemptible=False).runs_several("a", 4, 3, 1)
    assert set(pool.evicted_victims()) == {"a2"}


def test_units_that_are_leaving_already_are_counted() -> None:
    assert over(1, 1, 1).runs("l", "a", gpu=1, leaving_for="!").evicted_victims() == {"a3": "policy:a"}
    assert over(1, 1).runs("l", "a", gpu=1, leaving_for="!").evicted_victims() == {}


def test_several_accounts_are_relieved_at_once_the_inner_ones_first() -> None:
    # The two units that leave for the limit of the policy are among the three by which its group is over.
    pool = (
        a_fair_share_pool(gpu=20)
        .group("g", limit={"gpu": 4}, **LATE)
        .policy("a", "g", limit={"gpu": 2}, **LATE)
        .policy("b", "g")
    )
    pool.runs_several("a", 1, 1, 1, 1).runs_several("b", 1, 1, 1)
    assert pool.evicted_victims() == {"a4": "policy:a", "a3": "policy:a", "b3": "group:g"}


def test_a_pool_that_shrank_is_relieved() -> None:
    pool = a_fair_share_pool(gpu=4).policy("a").policy("b").runs_several("a", 1, 1, 1).runs_several("b", 1, 1)
    pool.pool_status = _over(30)
    assert pool.evicted_victims() == {"b2": "pool"}


def test_a_limit_as_large_as_the_pool_is_none() -> None:
    pool = a_fair_share_pool(gpu=4).policy("a", limit={"gpu": 4}, **LATE).runs_several("a", 1, 1, 1, 1, 1)
    assert pool.evicted_victims() == {}
    assert pool.published_fields()["pool"] == {"over_ms": str(NOW_MS)}


@pytest.mark.parametrize(("last_minute", "victims"), [(0, {"a5", "a4"}), (1, {"a5"}), (2, set())])
def test_a_minute_has_so_many_the_newest_first(last_minute: int, victims: set[str]) -> None:
    pool = over(1, 1, 1, 1, 1).with_settings(max_preemptions_per_minute=2)
    pool.preemptions_last_minute = last_minute
    assert set(pool.evicted_victims()) == victims


def test_evictions_count_in_the_minute_of_starving_waiters() -> None:
    pool = (
        over(1, 1, 1)
        .policy("b", **STARVING)
        .policy("c")
        .with_settings(max_preemptions_per_minute=2)
        .runs_several("c", *[1] * 17)
    )
    assert pool.waits("w", "b", gpu=3).steps() == [("evict", "a3")]
    pool.with_settings(max_preemptions_per_minute=3)
    assert [step[0] for step in pool.steps()] == ["evict", "preempt"]


def test_no_pause_keeps_them_and_they_are_no_decision() -> None:
    pool = (
        over(1, 1, 1).with_settings(backoff_s=5, max_victims=1).policy("b", **STARVING).policy("c").runs_several("c", *[1] * 17)
    )
    pool.last_decision_ms = NOW_MS - 1000
    assert pool.waits("w", "b", gpu=2).steps() == [("evict", "a3")]
    pool.last_decision_ms = NOW_MS - 5000
    assert [step[0] for step in pool.steps()] == ["evict", "preempt"]


def test_a_waiter_takes_no_more_than_what_is_short_when_they_have_left() -> None:
    pool = over(1, 1, 1, 1).policy("b", **STARVING).policy("c").runs_several("c", *[1] * 16)
    assert pool.waits("w", "b", gpu=2).steps() == [("evict", "a4", "a3")]


# the published statuses


def published(fair: dict[str, int], sated: tuple[str, ...] = (), **numbers: Any) -> dict[str, Any]:
    """Return the fields of a policy with this many published quarters of the pool."""
    return {"fair": {key: quarters * SHARE_UNITS // 4 for key, quarters in fair.items()}, "sated": sated, **numbers}


def halves(**numbers: Any) -> FairShareBuilder:
    """Return a pool of four units: one is due to `a`, which holds none; three are due to `b`, which holds all."""
    pool = a_fair_share_pool(gpu=4).policy("a", **numbers).policy("b", **published({"gpu": 3}))
    return pool.runs_several("b", 1, 1, 1, 1).waits("w", "a", gpu=1)


def test_shares_are_kept_and_on_which_keys_they_are_all_that_is_asked() -> None:
    rows = halves().published_fields()
    assert rows["policy:a"] == {"fair_share:gpu": str(SHARE_UNITS // 4), "demand_met:gpu": "1", "below_ms": str(NOW_MS)}
    assert rows.keys() == {"policy:a"}


def test_only_what_is_new_is_written() -> None:
    assert halves(**published({"gpu": 1}, ("gpu",))).published_fields() == {"policy:a": {"below_ms": str(NOW_MS)}}
    assert halves(**published({"gpu": 2}, below_s=5)).published_fields() == {
        "policy:a": {"fair_share:gpu": str(SHARE_UNITS // 4), "demand_met:gpu": "1"}
    }


def test_nothing_is_written_if_nothing_is_new() -> None:
    pool = halves(**published({"gpu": 1}, ("gpu",), below_s=5))
    pool.is_watched = True
    assert pool.publication() is None


def test_a_published_share_is_a_part_of_the_pool_rounded_down() -> None:
    pool = a_fair_share_pool(gpu=3).policy("a", weight=1).policy("b", weight=6)
    rows = pool.runs_several("a", 1).runs_several("b", 1, 1).waits("w", "a", gpu=5).waits("x", "b", gpu=5).published_fields()
    assert rows["policy:a"]["fair_share:gpu"] == str(SHARE_UNITS // 7)
    assert rows["policy:b"]["fair_share:gpu"] == str(SHARE_UNITS * 6 // 7)


def test_no_share_is_published_for_the_pool_groups_and_policies_without_demand() -> None:
    pool = (
        a_fair_share_pool(gpu=4).group("g").policy("a", "g").policy("idle", "g", **published({"gpu": 1})).runs_several("a", 1)
    )
    assert pool.published_fields() == {
        "policy:a": {"fair_share:gpu": str(SHARE_UNITS // 4), "demand_met:gpu": "1"},
        "policy:idle": {"fair_share:gpu": None},
    }


@pytest.mark.parametrize(
    ("below_s", "status", "now"),
    [
        (30, "", {}),
        (31, "", {"status": "starving"}),
        (31, "starving", {}),
        (61, "starving", {"status": "aggressively_starving"}),
        (61, "", {"status": "aggressively_starving"}),
        (31, "aggressively_starving", {"status": "starving"}),
        (30, "starving", {}),
    ],
)
def test_a_policy_below_its_share_starves_with_time(below_s: int, status: str, now: dict[str, str]) -> None:
    pool = halves(**published({"gpu": 1}, ("gpu",), below_s=below_s, status=status))
    pool.with_settings(aggressive_starvation=True, aggressive_starvation_timeout_s=60)
    assert pool.published_fields().get("policy:a", {}) == now


def test_a_policy_that_is_no_longer_below_its_share_stops_starving_at_once() -> None:
    pool = (
        a_fair_share_pool(gpu=4)
        .policy("a", **published({"gpu": 2}, below_s=500, status="starving"))
        .policy("b", **published({"gpu": 2}))
    )
    pool.runs_several("a", 1, 1).runs_several("b", 1, 1).waits("w", "a", gpu=1).waits("x", "b", gpu=1)
    assert pool.published_fields() == {"policy:a": {"status": None, "below_ms": None}}


def test_a_group_starves_as_well() -> None:
    pool = (
        a_fair_share_pool(gpu=4)
        .group("g", below_s=31)
        .policy("a", "g", **published({"gpu": 1}, ("gpu",), below_s=31, status="starving"))
    )
    pool.policy("b", **published({"gpu": 3})).runs_several("b", 1, 1, 1, 1).waits("w", "a", gpu=1)
    assert pool.published_fields() == {"group:g": {"status": "starving"}}


@pytest.mark.parametrize(("own", "now"), [(10, {}), (60, {}), (None, {"status": "starving"})])
def test_a_policy_can_only_be_more_patient(own: int | None, now: dict[str, str]) -> None:
    # Its group may starve for forty seconds.
    settings = {} if own is None else {"starvation_timeout_s": own}
    pool = a_fair_share_pool(gpu=4).group("g", starvation_timeout_s=40, status="starving", below_s=41)
    pool.policy("a", "g", **published({"gpu": 1}, ("gpu",), below_s=40 if own == 10 else 41, **settings))
    pool.policy("b", **published({"gpu": 3})).runs_several("b", 1, 1, 1, 1).waits("w", "a", gpu=1)
    assert pool.published_fields() == ({"policy:a": now} if now else {})


def test_a_clock_that_was_set_back_makes_no_account_starve() -> None:
    assert halves(**published({"gpu": 1}, ("gpu",), below_s=-60)).published_fields() == {"policy:a": {"below_ms": str(NOW_MS)}}


def test_the_time_since_an_account_is_over_its_limit_is_published() -> None:
    assert over(1, 1, 1, over_s=None).published_fields()["policy:a"]["over_ms"] == str(NOW_MS)
    assert "over_ms" not in over(1, 1, 1, over_s=5).published_fields()["policy:a"]
    assert over(1, 1, over_s=5).published_fields()["policy:a"]["over_ms"] is None
    assert "over_ms" not in over(1, 1, 1, over_s=None, over_limit="keep").published_fields()["policy:a"]


def test_an_account_is_over_its_limit_until_the_victims_have_left() -> None:
    assert "over_ms" not in over(1, 1, over_s=5).runs("l", "a", gpu=1, leaving_for="!").published_fields()["policy:a"]


@pytest.mark.parametrize("discipline", ["reserved", "classes"])
def test_in_another_discipline_all_of_it_goes(discipline: str) -> None:
    pool = halves(**published({"gpu": 1}, ("gpu",), below_s=5, status="starving")).with_settings(discipline=discipline)
    pool.is_watched = True
    publication = pool.publication()
    assert publication is not None
    assert not publication.is_watched
    removed_fields = {"fair_share:gpu": None, "demand_met:gpu": None, "status": None, "below_ms": None}
    assert pool.published_fields() == {"policy:a": removed_fields, "policy:b": {"fair_share:gpu": None}}


def test_a_pool_is_watched_while_time_alone_may_change_something() -> None:
    for pool, watched in ((halves(), True), (over(1, 1, 1, over_s=None), True), (over(1, 1, over_s=5), False)):
        pool.is_watched = not watched
        publication = pool.publication()
        assert publication is not None
        assert publication.is_watched is watched


def test_an_eviction_in_another_discipline_is_watched_as_well() -> None:
    pool: PoolBuilder = over(1, 1, 1, over_s=None).with_settings(discipline="reserved", over_limit="evict")
    publication = pool.plan().publication
    assert publication is not None
    assert publication.is_watched
    plain = a_pool(gpu=4).policy("a", limit={"gpu": 2}).runs("v", "a", gpu=3)
    assert plain.plan().publication is None


def _over(seconds: int) -> Any:
    return a_fair_share_pool(gpu=1).policy("x", over_s=seconds).snapshot().accounts["policy:x"].published
