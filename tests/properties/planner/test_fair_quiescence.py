"""With fair share, from any state and with nobody new: the preemptions come to an end, each served its waiter, and it is quiet.

Random pools with a past are planned for and left to themselves while time passes: what was found is kept, those who leave do so
at once, or later, one by one and in any order, and queue again without bound.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from app.domain.plan_steps import EndHold, EvictOverLimit, PlanStep, Preempt, Reprieve
from app.planner.planning_pass import plan_pool
from tests.properties.planner.fair_ledger_model import FairShareLedger
from tests.properties.planner.fair_strategies import SECOND_MS, Maker, World, act

LONGER = int(os.environ.get("HISTORIES") or 0)
FIRST = int(os.environ.get("FIRST", 0))
MOST = 60
"""Preemptions in a pool of a dozen holders and half as many waiters, after which it should long have been quiet."""
CALM_S = 1800
"""For how long nothing may happen: time alone lifts pauses and makes somebody starve."""
STEPS_S = (1, 4, 13, 40, 120)


@dataclass
class Ending:
    """A pool left to itself."""

    book: FairShareLedger
    at_once: bool
    choices: list[int]
    owed: list[str] = field(default_factory=list)
    """Waiters for whom somebody was told to leave, and who have not been granted since."""
    shaken: set[str] = field(default_factory=set)
    """Those of them who may have counted on somebody that was called back."""
    pairs: list[tuple[str, str]] = field(default_factory=list)
    """Who was told to leave for whom."""

    def run(self) -> None:
        """Until nothing has happened for long enough."""
        fixed = {one.id for one in self.book.allocations.values() if not one.preemptible}
        calm_s, turn = 0, 0
        while calm_s < CALM_S:
            happened = self._plan() or self._leave(self.choices[turn % len(self.choices)])
            self.owed = [id_ for id_ in self.owed if id_ in self.book.waiters]
            step_s = STEPS_S[self.choices[turn % len(self.choices)] % len(STEPS_S)] if calm_s < 130 else 300
            turn, calm_s = turn + 1, 0 if happened else calm_s + step_s
            self.book.now_ms += step_s * SECOND_MS
            assert len(self.pairs) + self.book.eviction_count <= MOST, f"no end to it: {self.pairs}"
        assert fixed <= set(self.book.allocations), "fixed work was touched"
        assert not self.book.holds, f"holds that nobody fills: {self.book.holds}"
        assert not self.owed, f"stopped in vain for {self.owed}"
        assert not list(self.circles()), f"they stop each other in circles: {self.pairs}"

    def circles(self) -> Iterator[tuple[str, str]]:
        """Pairs of whom one stopped the other, was stopped by it and stopped it again."""
        for pair in set(self.pairs):
            turns = [one for one in self.pairs if set(one) == set(pair)]
            if any(turns[at - 1] == turns[at + 1] != turns[at] for at in range(1, len(turns) - 1)):
                yield pair

    def _plan(self) -> bool:
        """Keep what was found, and take the steps until one is stale because somebody was granted; the first one never is."""
        found = plan_pool(self.book.snapshot())
        running = set(self.book.allocations)
        self.book.publish(found.publication)
        assert sum(isinstance(step, Preempt) for step in found.steps) <= 1
        for at, step in enumerate(found.steps):
            wrong = self.book.refusal(step)
            assert at > 0 or not wrong or running != set(self.book.allocations), f"{wrong}: {step}"
            if wrong:
                break
            self._note(step)
            self.book.take(step, at_once=self.at_once)
            if self.at_once:
                break
        return bool(found.steps) or running != set(self.book.allocations)

    def _note(self, step: PlanStep) -> None:
        """Only who counted on somebody that was called back may have had others leave in vain."""
        if isinstance(step, Preempt):
            assert all(self.book.allocations[victim.request].preemptible for victim in step.victims)
            self.pairs += [(step.waiter, victim.request) for victim in step.victims]
            self.owed += [step.waiter] if step.waiter not in self.owed else []
        if isinstance(step, EvictOverLimit):
            self.shaken |= set(self.owed)
        if isinstance(step, Reprieve):
            self.shaken |= set(self.owed)
        if isinstance(step, EndHold) and step.owner in self.owed:
            assert step.owner in self.shaken, f"others leave for {step.owner} in vain"
            self.owed.remove(step.owner)

    def _leave(self, choice: int) -> bool:
        leaving = sorted(one.id for one in self.book.allocations.values() if one.leaving_for is not None)
        if leaving:
            self.book.leave(leaving[choice % len(leaving)])
        return bool(leaving)


def left_alone(world: World) -> Ending:
    """A pool with its past, left to itself until it is quiet."""
    book = world.book()
    for op in world.ops:
        act(book, op, plan_pool)
    ending = Ending(book, world.at_once, world.choices)
    ending.run()
    return ending


@pytest.mark.timeout(24 * 3600 if LONGER else 120)
@pytest.mark.parametrize("kind", ["flat", "grouped", "plain", "crowded", "crowded and grouped"])
def test_a_pool_left_to_itself_becomes_quiet(kind: str) -> None:
    for seed in range(FIRST, FIRST + (LONGER or 90)):
        maker = Maker(seed, groups=kind not in ("flat", "crowded"), plain=kind == "plain", crowded="crowded" in kind)
        try:
            left_alone(maker.world())
        except AssertionError as error:
            raise AssertionError(f"{kind} {seed}: {error}") from error
