"""The cases with exact numbers that a production scheduler's own tests hold.

They are kept beside the project, in `shared/cases` next to its folder or wherever POOLKEEPER_CASES says; without them this is
skipped. Their pools are groups here, and their operations policies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import lcm
from pathlib import Path
from typing import Any

import pytest

from app.domain.amounts import encode
from app.planner.fair_share.preemptible_split import split_allocations
from app.planner.fair_share.satisfaction import is_below, satisfaction_ratio
from app.planner.fair_share.share_tree import Branch, Leaf
from app.planner.fair_share.starvation import (
    StarvationSettings,
    StarvationState,
    inherit_settings,
    next_state,
    read_pool_settings,
)
from app.planner.fair_share.water_filling import AccountShares, Division, divide
from tests.support.paths import BESIDE
from tests.unit.planner.fair_share.leaves import allocations

FILE = Path(os.environ.get("POOLKEEPER_CASES", BESIDE / "cases")) / "fair_share.json"
CASES: list[dict[str, Any]] = json.loads(FILE.read_text("utf-8"))["cases"] if FILE.exists() else []

pytestmark = pytest.mark.skipif(not CASES, reason="the cases are not there")


def _of(check: str) -> pytest.MarkDecorator:
    cases = [case for case in CASES if case["check"] == check]
    return pytest.mark.parametrize("case", cases, ids=[case["id"] for case in cases])


class _Case:
    """A case in whole units: everything is multiplied until nothing is broken."""

    def __init__(self, case: dict[str, Any]) -> None:
        texts = [case["total"], *case.get("non_preemptible_resource_usage_threshold", {}).values()]
        for element in _elements(case["tree"]):
            texts += [element.get(name, {}) for name in ("usage", "demand", "strong_guarantee", "resource_limits")]
        numbers = [number for amounts in texts if isinstance(amounts, dict) for number in amounts.values()]
        self.factor = lcm(*(Fraction(str(number)).denominator for number in numbers))
        self.capacity = self.amounts(case["total"])
        self.tree = self._branch(case["tree"])

    def amounts(self, numbers: Mapping[str, float] | None) -> dict[str, int]:
        return {key: int(Fraction(str(number)) * self.factor) for key, number in (numbers or {}).items()}

    def _branch(self, element: dict[str, Any]) -> Branch:
        children = [self._account(child) for child in element.get("children", [])]
        mode = element.get("mode", "fair_share")
        if mode == "fifo":
            children.sort(key=lambda child: -child.weight)
        guarantee_and_limit = self.amounts(element.get("strong_guarantee")), self.amounts(element.get("resource_limits"))
        return Branch(element["name"], element.get("weight", 1), mode, tuple(children), *guarantee_and_limit)

    def _account(self, element: dict[str, Any]) -> Leaf | Branch:
        if element["kind"] == "pool":
            return self._branch(element)
        amounts = [self.amounts(element.get(name)) for name in ("usage", "demand", "strong_guarantee", "resource_limits")]
        return Leaf(element["name"], element.get("weight", 1), *amounts)

    def divide(self) -> Division:
        return divide(self.capacity, self.tree)


def _elements(element: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield element
    for child in element.get("children", []):
        yield from _elements(child)


def _compare(division: Division, expected: Mapping[str, Mapping[str, float]], tolerance: float) -> None:
    shares = {
        name: {key: division.accounts[name].fair[division.keys.index(key)] / division.scale for key in shares}
        for name, shares in expected.items()
    }
    assert shares == {name: pytest.approx(shares, abs=tolerance) for name, shares in expected.items()}


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES if "expected_fair_share" in case])
def test_fair_shares(case: dict[str, Any]) -> None:
    _compare(_Case(case).divide(), case["expected_fair_share"], case.get("tolerance", 1e-6))


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["id"]) for case in CASES if "expected_promised_guarantee_fair_share" in case]
)
def test_a_guarantee_holds_where_another_account_takes_the_rest(case: dict[str, Any]) -> None:
    # One group is asked, beside a rival to which all other units are guaranteed.
    whole = _Case(case)
    (name_asked,) = (
        element["name"] for element in _elements(case["tree"]) if element.get("compute_promised_guarantee_fair_share")
    )
    group = next(child for child in whole.tree.children if child.name == name_asked)
    rest = {key: units - group.guarantee[key] for key, units in whole.capacity.items() if key in group.guarantee}
    rival = Leaf("rival", demand=whole.capacity, guarantee=rest)
    division = divide(whole.capacity, Branch("pool", children=(group, rival)))
    expected = case["expected_promised_guarantee_fair_share"]
    below = {name: shares for name, shares in expected.items() if name in division.accounts}
    assert set(below) >= {name_asked}
    _compare(division, below, case["tolerance"])
    assert all(not any(shares.values()) for name, shares in expected.items() if name not in below)


@_of("satisfaction_ratio")
def test_satisfaction(case: dict[str, Any]) -> None:
    whole = _Case(case)
    division = whole.divide()

    def ratio(account: Leaf | Branch) -> float:
        if isinstance(account, Branch):
            return min(map(ratio, account.children), default=float("inf"))
        satisfaction = satisfaction_ratio(division.accounts[account.name], division.scale)
        return float("inf") if satisfaction is None else float(satisfaction)

    ratios = {account.name: ratio(account) for account in _accounts(whole.tree)}
    for name, expected in case["expected_satisfaction"].items():
        assert ratios[name] == pytest.approx(float(str(expected).replace("infinite", "inf")), abs=case["tolerance"]), name


@_of("starvation_status")
def test_status(case: dict[str, Any]) -> None:
    whole = _Case(case)
    division = whole.divide()
    settings = StarvationSettings(tolerance=Fraction(str(case["effective_tolerance"])))
    leaves = {account.name for account in _accounts(whole.tree) if isinstance(account, Leaf)}

    def below(name: str) -> bool:
        return is_below(division.accounts[name], settings.tolerance, division.scale, name in leaves)

    def later(name: str) -> str:
        queued = 1 if name in leaves else None
        state = next_state(StarvationState(), below(name), 0, settings, queued)
        return next_state(state, below(name), settings.timeout_s * 1000 + 1, settings, queued).status

    statuses = {name: "below_fair_share" if below(name) else "normal" for name in case["expected_status"]}
    assert statuses == case["expected_status"]
    assert {name: later(name) for name in case["expected_starvation"]} == case["expected_starvation"]


@_of("preemption_split")
def test_split(case: dict[str, Any]) -> None:
    whole = _Case(case)
    division = whole.divide()
    account = division.accounts[case["operation"]]
    amounts = [whole.amounts(entry["resources"]) for entry in case["running"] for _ in range(entry["count"])]
    split = split_allocations(allocations(*amounts), account, division, _patience(case, whole))
    assert {name: len(getattr(split, name)) for name in case["expected_split"]} == case["expected_split"]
    for measure, expected in case.get("expected_dominant", {}).items():
        assert _dominant(account, measure) / division.scale == pytest.approx(expected)


def _patience(case: dict[str, Any], whole: _Case) -> StarvationSettings:
    effective = whole.amounts(case.get("non_preemptible_resource_usage_threshold"))
    configured = case.get("configured", {"tree": case.get("non_preemptible_resource_usage_threshold")})
    settings = {
        name: {"non_preemptible_usage_threshold": encode(whole.amounts(amounts))} for name, amounts in configured.items()
    }
    thresholds = case["thresholds"]
    settings["tree"] |= {
        "aggressive_preemption_threshold": str(thresholds["aggressive"]),
        "preemption_threshold": str(thresholds["normal"]),
    }
    inherited = inherit_settings(read_pool_settings(settings["tree"]), settings.get("operation", {}), is_policy=True)
    assert inherited.protected_usage == effective
    return inherited


def _dominant(account: AccountShares, measure: str) -> int:
    return max({"demand": account.demand, "fair_share": account.fair}[measure])


def _accounts(account: Leaf | Branch) -> Iterator[Leaf | Branch]:
    yield account
    if isinstance(account, Branch):
        for child in account.children:
            yield from _accounts(child)
