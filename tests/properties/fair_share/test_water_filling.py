"""Properties of every division, for any tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.planner.fair_share.share_tree import Branch, Leaf
from app.planner.fair_share.water_filling import Division, divide
from tests.properties.fair_share.random_trees import TreeGenerator, all_accounts

MANY = settings(max_examples=100, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
TRIFLE = 10**9
"""The inverse of the relative difference that counts as rounding."""

RANDOMS = st.randoms(use_true_random=False)
FINENESS = st.sampled_from((4, 12, 1_000, 10**9))


def _grown(random: Random, fine: int, keys: int = 4) -> tuple[TreeGenerator, Branch, Division]:
    grower = TreeGenerator(random, fine=fine, groups=2, keys=keys)
    tree = grower.tree()
    return grower, tree, divide(grower.capacity, tree)


@MANY
@given(RANDOMS, FINENESS)
def test_a_node_is_due_what_its_children_are(random: Random, fine: int) -> None:
    _, tree, division = _grown(random, fine)
    for account in all_accounts(tree):
        if isinstance(account, Branch):
            below = [division.accounts[child.name].fair for child in account.children]
            assert division.accounts[account.name].fair == tuple(map(sum, zip(*below, strict=True))) or not below


@MANY
@given(RANDOMS, FINENESS)
def test_fair_shares_stay_within_demand_limit_and_capacity(random: Random, fine: int) -> None:
    # The fair share of a group may exceed its limit, but only by units that are guaranteed in it.
    _, tree, division = _grown(random, fine)
    assert all(0 <= due <= division.scale for due in division.accounts["pool"].fair)
    for account in all_accounts(tree):
        shares = division.accounts[account.name]
        most = shares.limit
        if isinstance(account, Branch):
            promised = [division.accounts[child.name].guarantee for child in account.children]
            most = tuple(map(max, most, map(sum, zip(*promised, strict=True)))) if promised else most
        assert all(due <= demand for due, demand in zip(shares.fair, shares.demand, strict=True))
        assert all(due <= top + division.scale // TRIFLE for due, top in zip(shares.fair, most, strict=True))


@pytest.mark.parametrize(("fine", "seed"), [(100, 5354), (1_000, 64), (1_000, 4935)])
def test_not_even_the_last_digit_is_given_away_twice(fine: int, seed: int) -> None:
    # In these trees the roundings of several children add up to one.
    _, _, division = _grown(Random(seed), fine)
    assert max(division.accounts["pool"].fair) <= division.scale


@MANY
@given(RANDOMS, FINENESS)
def test_a_guaranteed_demand_within_the_limit_is_the_fair_share(random: Random, fine: int) -> None:
    _, tree, division = _grown(random, fine)
    for account in all_accounts(tree):
        shares = division.accounts[account.name]
        bounds = zip(shares.demand, shares.guarantee, shares.limit, strict=True)
        if isinstance(account, Leaf) and all(demand <= min(assured, top) for demand, assured, top in bounds):
            lost = [demand - due for demand, due in zip(shares.demand, shares.fair, strict=True)]
            assert max(lost) <= division.scale // TRIFLE


@MANY
@given(RANDOMS, FINENESS)
def test_of_a_single_key_every_guarantee_is_honoured_as_far_as_it_is_wanted_and_allowed(random: Random, fine: int) -> None:
    _, tree, division = _grown(random, fine, keys=1)
    for account in all_accounts(tree):
        if isinstance(account, Leaf):
            shares = division.accounts[account.name]
            (due,), *bounds = shares.fair, shares.demand, shares.guarantee, shares.limit
            assert due + division.scale // TRIFLE >= min(bound for (bound,) in bounds)


@MANY
@given(RANDOMS, FINENESS)
def test_of_a_single_key_without_limits_nothing_wanted_is_left_over(random: Random, fine: int) -> None:
    grower = TreeGenerator(random, fine=fine, groups=2, keys=1, limits=False)
    division = divide(grower.capacity, grower.tree())
    pool = division.accounts["pool"]
    assert pool.fair[0] == pytest.approx(min(division.scale, pool.demand[0]), abs=division.scale // TRIFLE)


@MANY
@given(RANDOMS, FINENESS)
def test_when_it_stops_some_key_is_used_up_in_the_pool_or_a_limit_is_reached_on_the_way(random: Random, fine: int) -> None:
    # A share below the demand has a reason: the account, a group above it or the pool is at the end of some key, or a jump
    # would exceed it. Without jumps (nothing runs, so all keys rise together in a leaf) it is an end.
    grower = TreeGenerator(random, fine=fine, groups=0, keys=4, limits=False)
    tree = _idle(grower.tree())
    division = divide(grower.capacity, tree)
    pool = division.accounts["pool"]
    full = any(due + division.scale // TRIFLE >= division.scale for due in pool.fair)
    for child in tree.children:
        shares = division.accounts[child.name]
        short = any(due + division.scale // TRIFLE < demand for due, demand in zip(shares.fair, shares.demand, strict=True))
        assert full or not short


def _idle(tree: Branch) -> Branch:
    return replace(tree, children=tuple(replace(child, usage={}) for child in tree.children if isinstance(child, Leaf)))


@MANY
@given(RANDOMS, FINENESS, st.data())
def test_of_a_single_key_more_weight_is_never_less(random: Random, fine: int, data: st.DataObject) -> None:
    grower, tree, division = _grown(random, fine, keys=1)
    chosen = data.draw(st.sampled_from(tree.children))
    heavier = replace(chosen, weight=chosen.weight + data.draw(st.integers(1, 9)))
    changed = replace(tree, children=tuple(heavier if child is chosen else child for child in tree.children))
    before, after = division.accounts[chosen.name].fair[0], divide(grower.capacity, changed).accounts[chosen.name].fair[0]
    assert after + division.scale // TRIFLE >= before


@MANY
@given(RANDOMS, FINENESS)
def test_the_order_of_children_matters_in_fifo_groups_only(random: Random, fine: int) -> None:
    grower, tree, division = _grown(random, fine)

    def turned(account: Leaf | Branch) -> Leaf | Branch:
        if isinstance(account, Leaf):
            return account
        children = tuple(map(turned, account.children))
        return replace(account, children=children if account.mode == "fifo" else children[::-1])

    assert divide(grower.capacity, _branch(turned(tree))).accounts == division.accounts


@MANY
@given(RANDOMS, FINENESS, st.integers(2, 1000))
def test_only_shares_matter_not_units(random: Random, fine: int, times: int) -> None:
    grower, tree, division = _grown(random, fine)
    many = divide(
        {key: units * times for key, units in grower.capacity.items()}, _branch(_each(tree, lambda units: units * times))
    )
    for name, account in division.accounts.items():
        for fair, other_fair in zip(account.fair, many.accounts[name].fair, strict=True):
            assert abs(fair * many.scale - other_fair * division.scale) * TRIFLE <= division.scale * many.scale


def _each(account: Leaf | Branch, change: Callable[[int], int]) -> Leaf | Branch:
    fields: dict[str, Any] = {
        name: {key: change(units) for key, units in getattr(account, name).items()}
        for name in ("usage", "demand", "guarantee", "limit")
        if hasattr(account, name)
    }
    if isinstance(account, Branch):
        fields["children"] = tuple(_each(child, change) for child in account.children)
    return replace(account, **fields)


def _branch(account: Leaf | Branch) -> Branch:
    assert isinstance(account, Branch)
    return account
