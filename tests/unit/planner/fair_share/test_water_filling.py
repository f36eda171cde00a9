"""Fair shares, rule by rule: examples that can be computed on paper."""

from __future__ import annotations

import pytest

from app.domain.amounts import Amounts
from app.planner.fair_share.share_tree import Branch, Leaf
from app.planner.fair_share.water_filling import divide
from tests.unit.planner.fair_share.leaves import fair_shares

POOL = {"cpu": 100, "memory": 1000}
ALL = {"cpu": 100, "memory": 1000}


def _due(capacity: Amounts, *children: Leaf | Branch) -> dict[str, dict[str, float]]:
    """Return the fair shares of all accounts in a pool."""
    division = divide(capacity, Branch("pool", children=children))
    return {name: fair_shares(division, name) for name in division.accounts}


def _close(**expected: float) -> object:
    return pytest.approx(expected, abs=1e-12)


# Without guarantees and limits


def test_dominant_shares_are_equal() -> None:
    due = _due(POOL, Leaf("x", demand={"cpu": 100, "memory": 2000}), Leaf("y", demand={"cpu": 200, "memory": 1000}))
    assert due["x"] == _close(cpu=1 / 3, memory=2 / 3)
    assert due["y"] == _close(cpu=2 / 3, memory=1 / 3)
    assert due["pool"] == _close(cpu=1, memory=1)


def test_a_group_is_as_one() -> None:
    a = Branch("a", children=(Leaf("x", demand={"cpu": 10, "memory": 200}), Leaf("y", demand={"cpu": 3000, "memory": 10_000})))
    due = _due(POOL, a, Branch("b", children=(Leaf("z", demand={"cpu": 2000, "memory": 100_000}),)))
    assert due["z"] == _close(cpu=0.125, memory=0.625)
    assert due["a"] == _close(cpu=0.625, memory=0.375)
    assert due["x"] == _close(cpu=0.1, memory=0.2)
    assert due["y"] == _close(cpu=0.525, memory=0.175)


def test_weights_part_what_all_want() -> None:
    due = _due(POOL, *(Leaf(name, weight, demand=ALL) for name, weight in (("x", 10), ("y", 2), ("z", 1))))
    assert [due[name]["cpu"] for name in "xyz"] == [pytest.approx(part / 13) for part in (10, 2, 1)]


def test_what_one_does_not_want_goes_to_its_siblings() -> None:
    due = _due({"gpu": 10}, Leaf("x", demand={"gpu": 9}), Leaf("y", demand={"gpu": 1}))
    assert (due["x"], due["y"]) == (_close(gpu=0.9), _close(gpu=0.1))


def test_those_in_a_fifo_group_are_served_one_after_the_other() -> None:
    queue = Branch("queue", mode="fifo", children=(Leaf("first", demand={"gpu": 30}), Leaf("second", demand={"gpu": 30})))
    due = _due({"gpu": 100}, queue, Leaf("rival", demand={"gpu": 100}))
    assert (due["first"], due["second"]) == (_close(gpu=0.3), _close(gpu=0.2))


def test_in_a_fifo_group_the_last_is_served_beside_the_first_whose_demand_is_met() -> None:
    children = (Leaf("first", demand={"cpu": 30}), Leaf("second", demand={"memory": 500}), Leaf("third", demand={"cpu": 50}))
    due = _due(POOL, Branch("queue", mode="fifo", children=children))
    assert (due["first"]["cpu"], due["second"]["memory"], due["third"]["cpu"]) == (0.3, 0.5, 0.5)


@pytest.mark.parametrize(
    ("offer", "expected"), [(5, (0.05, 0.05)), (10, (0.1, 0.1)), (30, (0.3, 0.1)), (55, (0.55, 0.35)), (60, (0.6, 0.6))]
)
def test_what_runs_is_covered_before_what_waits(offer: int, expected: tuple[float, float]) -> None:
    # The rival is served first and leaves the offer.
    x = Leaf("x", usage={"cpu": 50, "memory": 100}, demand={"cpu": 60, "memory": 600})
    rival = Leaf("rival", demand={"cpu": 100 - offer, "memory": 10 * (100 - offer)})
    due = _due(POOL, Branch("queue", mode="fifo", children=(rival, x)))
    assert due["x"] == _close(cpu=expected[0], memory=expected[1])


def test_without_demand_the_fair_share_is_zero() -> None:
    due = _due(POOL, Leaf("idle"), Branch("empty"), Branch("line", mode="fifo"), Branch("over", children=(Leaf("below"),)))
    assert all(share == {"cpu": 0, "memory": 0} for share in due.values())


def test_a_key_that_the_pool_has_nothing_of_counts_for_nothing() -> None:
    due = _due({"cpu": 100, "gpu": 0}, Leaf("x", demand={"cpu": 300, "gpu": 7, "memory": 5}))
    assert due["x"] == {"cpu": 1, "gpu": 0}


def test_more_that_runs_than_is_wanted_counts_as_wanted() -> None:
    division = divide({"gpu": 4}, Branch("pool", children=(Leaf("x", usage={"gpu": 3}, demand={"gpu": 1}),)))
    assert division.accounts["x"].demand == division.accounts["x"].usage
    assert fair_shares(division, "x") == {"gpu": 0.75}


# Guarantees


def test_what_is_free_comes_on_top_of_the_guarantees() -> None:
    due = _due(
        {"gpu": 10}, Leaf("x", demand={"gpu": 9}, guarantee={"gpu": 6}), Leaf("y", demand={"gpu": 9}, guarantee={"gpu": 2})
    )
    assert (due["x"], due["y"]) == (_close(gpu=0.7), _close(gpu=0.3))


def test_guarantees_in_guarantees() -> None:
    children = (
        Leaf("a1", demand=ALL, guarantee={"cpu": 10}),
        Leaf("a2", demand=ALL),
        Leaf("a3", demand={"cpu": 2, "memory": 20}),
    )
    due = _due(POOL, Branch("a", children=children, guarantee={"cpu": 30}), Leaf("b", demand=ALL, guarantee={"cpu": 30}))
    assert {name: due[name]["cpu"] for name in ("a", "b", "a1", "a2", "a3")} == pytest.approx(
        {"a": 0.5, "b": 0.5, "a1": 0.29, "a2": 0.19, "a3": 0.02}
    )


def test_a_guarantee_beyond_the_demand_is_left_to_the_siblings() -> None:
    due = _due({"gpu": 10}, Leaf("x", demand={"gpu": 2}, guarantee={"gpu": 6}), Leaf("y", demand={"gpu": 20}))
    assert (due["x"], due["y"]) == (_close(gpu=0.2), _close(gpu=0.8))


def test_an_idle_guarantee_inside_a_group_is_its_siblings_before_others() -> None:
    a = Branch(
        "a",
        children=(Leaf("a1", guarantee={"gpu": 4}), Leaf("a2", demand={"gpu": 10}, guarantee={"gpu": 2})),
        guarantee={"gpu": 6},
    )
    due = _due({"gpu": 10}, a, Leaf("b", demand={"gpu": 10}))
    assert (due["a2"], due["b"]) == (_close(gpu=0.8), _close(gpu=0.2))


def test_of_a_key_that_is_not_named_the_largest_part_named_is_guaranteed() -> None:
    x = Leaf("x", guarantee={"cpu": 10, "gpu": 4})
    division = divide({"cpu": 100, "gpu": 10, "memory": 1000}, Branch("pool", children=(x, Leaf("y"))))
    assert [share * 10 for share in division.accounts["x"].guarantee] == [
        division.scale,
        4 * division.scale,
        4 * division.scale,
    ]
    assert not any(division.accounts["y"].guarantee)


def test_inferred_guarantees_are_cut_to_what_explicit_ones_leave() -> None:
    children = (
        Leaf("x", guarantee={"cpu": 60}),
        Leaf("y", guarantee={"cpu": 20}),
        Leaf("z", guarantee={"memory": 600}),
    )
    division = divide(POOL, Branch("pool", children=children))
    scale = division.scale
    shares = {name: [share / scale for share in division.accounts[name].guarantee] for name in "xyz"}
    assert shares == {"x": [0.6, pytest.approx(0.3)], "y": [0.2, pytest.approx(0.1)], "z": [pytest.approx(0.2), 0.6]}


def test_what_is_guaranteed_in_a_group_is_inferred_from_the_groups_guarantee() -> None:
    group = Branch("a", children=(Leaf("x", guarantee={"cpu": 10}),), guarantee={"cpu": 20, "memory": 100})
    division = divide(POOL, Branch("pool", children=(group, Leaf("b", guarantee={"cpu": 80, "memory": 900}))))
    assert division.accounts["x"].guarantee == (division.scale // 10, division.scale // 20)


@pytest.mark.parametrize(("above", "own"), [(50, 60), (50, 50)])
def test_no_more_is_inferred_than_the_parent_is_guaranteed(above: int, own: int) -> None:
    # This holds for a guarantee above that of its parent, too.
    group = Branch("a", children=(Leaf("x", guarantee={"cpu": own}),), guarantee={"cpu": above, "memory": 400})
    division = divide(POOL, Branch("pool", children=(group,)))
    assert division.accounts["x"].guarantee == (division.scale * own // 100, division.scale * 4 // 10)


def test_where_more_is_named_than_the_parent_is_guaranteed_nothing_is_left_to_infer() -> None:
    children = (Leaf("x", guarantee={"cpu": 60}), Leaf("y", guarantee={"memory": 500}))
    division = divide(POOL, Branch("pool", children=(Branch("a", children=children, guarantee={"cpu": 50, "memory": 500}),)))
    assert division.accounts["y"].guarantee == (0, division.scale // 2)


def test_named_as_nothing_is_nothing() -> None:
    division = divide(POOL, Branch("pool", children=(Leaf("x", guarantee={"cpu": 50, "memory": 0}),)))
    assert division.accounts["x"].guarantee == (division.scale // 2, 0)


# Limits


def test_what_a_limit_keeps_from_one_is_for_the_others() -> None:
    due = _due(
        {"cpu": 6}, Branch("a", children=(Leaf("x", demand={"cpu": 4}),), limit={"cpu": 2}), Leaf("y", demand={"cpu": 4})
    )
    assert (due["x"], due["a"], due["y"]) == (_close(cpu=1 / 3), _close(cpu=1 / 3), _close(cpu=2 / 3))


def test_a_limit_below_the_demand_freezes_all_below_on_every_key() -> None:
    group = Branch("a", children=(Leaf("x", demand={"cpu": 50}), Leaf("y", demand={"memory": 500})), limit={"cpu": 10})
    due = _due(POOL, group)
    assert (due["x"], due["y"]) == (_close(cpu=0.1, memory=0), _close(cpu=0, memory=0.1))


def test_a_limit_equal_to_the_demand_stops_no_account() -> None:
    group = Branch("a", children=(Leaf("x", demand={"cpu": 10}), Leaf("y", demand={"memory": 500})), limit={"cpu": 10})
    due = _due(POOL, group)
    assert (due["x"], due["y"]) == (_close(cpu=0.1, memory=0), _close(cpu=0, memory=0.5))


def test_a_limit_of_nothing_gives_nothing_even_to_what_runs() -> None:
    due = _due({"gpu": 10}, Leaf("x", usage={"gpu": 4}, demand={"gpu": 4}, limit={"gpu": 0}), Leaf("y", demand={"gpu": 10}))
    assert (due["x"], due["y"]) == (_close(gpu=0), _close(gpu=1))


def test_a_groups_limit_below_what_is_guaranteed_in_it_yields() -> None:
    group = Branch("a", children=(Leaf("x", demand={"gpu": 9}, guarantee={"gpu": 4}),), guarantee={"gpu": 4}, limit={"gpu": 3})
    due = _due({"gpu": 10}, group, Leaf("b", demand={"gpu": 10}))
    assert (due["x"], due["b"]) == (_close(gpu=0.4), _close(gpu=0.6))


# Jumps


def test_at_a_jump_the_lower_value_counts_though_the_higher_would_fit() -> None:
    # At level 0.04 x has all the network that it wants, and from there on the offer buys only cpu, of which 0.14 is taken.
    x = Leaf("x", 10, demand={"cpu": 10, "network": 40})
    y = Leaf("y", 1, demand={"cpu": 1000})
    limited = Branch("limited", children=(Branch("a", children=(x, y)), Branch("b")), limit={"cpu": 40})
    due = _due({"cpu": 100, "network": 100}, limited)
    assert (due["x"], due["y"]) == (_close(cpu=0.1, network=0.4), _close(cpu=0.04, network=0))


def test_what_a_node_does_not_take_at_a_jump_is_its_siblings() -> None:
    # As above, with a sibling that takes all the cpu that is left: the part that is not taken, not the part above the limit.
    x = Leaf("x", 10, demand={"cpu": 10, "network": 40})
    y = Leaf("y", 1, demand={"cpu": 1000})
    limited = Branch("limited", children=(Branch("a", children=(x, y)),), limit={"cpu": 40})
    due = _due({"cpu": 100, "network": 100}, limited, Leaf("z", demand={"cpu": 100}))
    assert (due["limited"], due["z"]) == (_close(cpu=0.14, network=0.4), _close(cpu=0.86, network=0))


def test_until_an_offer_pays_for_a_jump_it_is_not_begun() -> None:
    # At 0.3 x would take as much memory as y has, so a stands still until it is offered both; b goes on alone.
    x = Leaf("x", usage={"cpu": 30}, demand={"cpu": 30, "memory": 300})
    group = Branch("a", children=(x, Leaf("y", demand={"memory": 1000})))
    due = _due(POOL, group, Leaf("b", demand={"memory": 1000}))
    assert (due["a"], due["b"]) == (_close(cpu=0.3, memory=0.3), _close(cpu=0, memory=0.6))


def test_a_jump_of_several_keys_is_one_jump() -> None:
    # When the chain below has its cpu, its memory and slots jump together; an offer of 0.55 covers both, less covers neither.
    line = ({"cpu": 30}, {"memory": 25}, {"slots": 30})
    below = Branch("below", mode="fifo", children=tuple(Leaf(f"x{place}", demand=demand) for place, demand in enumerate(line)))
    first = Leaf("first", demand={"memory": 25, "slots": 25})
    due = _due(
        {"cpu": 100, "memory": 100, "slots": 100},
        Branch("above", mode="fifo", children=(first, below)),
        Leaf("rival", demand={"memory": 100}),
    )
    assert due["rival"] == _close(cpu=0, memory=0.55, slots=0)
    assert due["above"] == _close(cpu=0.3, memory=0.25, slots=0.25)


def test_at_the_full_offer_the_lower_value_counts_too() -> None:
    # x and y take all the slots, which is the full offer of the group; their other demand lies behind it.
    x = Leaf("x", usage={"slots": 2}, demand={"slots": 2, "memory": 2})
    group = Branch("a", 2, children=(x, Leaf("y", demand={"slots": 2})))
    due = _due({"slots": 4, "memory": 4}, group, Leaf("z", demand={"memory": 4}))
    assert (due["a"], due["z"]) == (_close(slots=1, memory=0), _close(slots=0, memory=1))


def test_behind_a_jump_the_higher_value_counts() -> None:
    # The same with a limit that lets it go on.
    x = Leaf("x", 10, demand={"cpu": 10, "network": 40})
    y = Leaf("y", 1, demand={"cpu": 1000})
    limited = Branch("limited", children=(Branch("a", children=(x, y)), Branch("b")), limit={"cpu": 41})
    assert _due({"cpu": 100, "network": 100}, limited)["y"] == _close(cpu=0.31, network=0)


def test_what_costs_nothing_more_is_given_when_the_demand_of_the_dearer_key_is_met() -> None:
    # All the cpu runs already, so its memory costs no other account anything.
    due = _due(POOL, Leaf("x", usage={"cpu": 50}, demand={"cpu": 50, "memory": 200}))
    assert due["x"] == _close(cpu=0.5, memory=0.2)


def test_a_guarantee_covers_what_lies_behind_a_jump_in_it() -> None:
    # At an offer of zero the higher value counts: x jumps to its demand within its group's guarantee, and y stays.
    x = Leaf("x", usage={"cpu": 40, "memory": 100}, demand={"cpu": 40, "memory": 400})
    group = Branch("a", children=(x, Leaf("y", demand=ALL)), guarantee={"cpu": 80, "memory": 800})
    due = _due(POOL, group, Leaf("b", demand=ALL, guarantee={"cpu": 20, "memory": 200}))
    assert (due["x"], due["y"], due["b"]) == tuple(_close(cpu=share, memory=share) for share in (0.4, 0.4, 0.2))


@pytest.mark.parametrize("parts", [3, 7, 11, 13, 17])
@pytest.mark.parametrize(("more", "jump"), [(-5, False), (5, True)])
def test_jumps_of_two_that_fall_together_are_not_parted_by_rounding(parts: int, more: int, jump: bool) -> None:
    # q jumps to a hundredth of memory when its group has so many hundredths of cpu, and a little more; there p is served forty
    # times as far as any part of q's weight. y jumps, by its weight, at the same level. So both take memory there or neither
    # does, although the level is not a decimal and is reached in two ways.
    q = Leaf("q", parts, usage={"cpu": 10}, demand={"cpu": 10, "memory": 600})
    group = Branch("a", children=(Leaf("p", 40, demand={"cpu": 1000}), q, Leaf("idle", 1)))
    hundredths = 10 * (40 + parts)
    y = Leaf("y", parts, usage={"cpu": hundredths}, demand={"cpu": hundredths, "memory": 600})
    limit = {"memory": 10 + hundredths + more}
    due = _due({"cpu": 1000, "memory": 1000}, Branch("all", children=(group, y), limit=limit))
    assert [due[name]["memory"] > 0 for name in "qy"] == [jump, jump]
