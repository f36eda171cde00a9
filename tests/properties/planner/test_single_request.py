"""One ask among many: the pass as far as to it, and what all policies bring together."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from app.domain.snapshot import Snapshot
from app.planner.decisions import Why
from app.planner.planning_pass import _Pass, plan
from app.planner.preemption.attempt import Case
from app.planner.preemption.candidates import Court, Takable
from app.planner.preemption.rules import Standing
from app.planner.replay import replay
from tests.properties.planner.strategies import snapshots
from tests.unit.planner.builders import a_pool


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(snapshots())
def test_a_pass_that_ends_at_somebody_decides_the_same_about_it(snapshot: Snapshot) -> None:
    whole = plan(snapshot).decisions
    for waiter, decision in whole.items():
        found = plan(snapshot, until=waiter).decisions
        assert found[waiter] == decision
        assert list(found[waiter].verdicts()) == list(decision.verdicts())
        assert found.items() <= whole.items()


def test_what_an_ask_costs_grows_with_the_kinds_of_policies_and_not_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def counted(court: Court, component: str, standing: Standing) -> Takable:
        nonlocal looks
        looks += 1
        return takable(court, component, standing)

    takable = Court.takable
    monkeypatch.setattr(Court, "takable", counted)
    policies, waiters = 100, 40
    scene = a_pool(gpu=policies).group("g")
    for number in range(policies):
        group = "g" if number % 2 else None
        scene.policy(f"c{number}", group, priority=number % 4).runs(f"r{number}", f"c{number}", gpu=1)
    for number in range(waiters):
        scene.waits(f"w{number}", f"c{number}", gpu=policies)
    decisions = scene.plan().decisions
    assert {decision.why for decision in decisions.values()} == {Why.NOT_ENOUGH}
    assert looks < policies * waiters / 3


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(snapshots())
def test_what_all_together_bring_is_what_each_brings(snapshot: Snapshot) -> None:
    judged = _Pass(snapshot, frozenset())
    books, court = judged._books, judged._court
    for step in (None, *plan(snapshot).steps):
        if step is not None:
            replay(books, snapshot, [step])
        for waiter in snapshot.waiters:
            deficits = books.deficits(waiter, books.end)
            case = Case(court, waiter, books.end, deficits)
            left = [units for _, _, units in case.needs]
            for component in books.tree.paths:
                meets = books.tree.meeting(waiter.component, component)
                for number, (at, key, _) in enumerate(case.needs):
                    left[number] -= case.takable(component).total(key) if at >= meets else 0
            assert case.could_suffice() == (all(units <= 0 for units in left)) or not deficits
