"""The planner beside an oracle that searches all sets: the same decisions in the same order, step by step.

`HISTORIES=5000 make test ARGS="tests/properties/planner"` tries that many pools, new ones each time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from app.domain.plan_steps import EndHold, PlanStep, Preempt, ReassignVictim, Reprieve
from app.domain.snapshot import PoolSnapshot, Waiter
from app.planner.planning_pass import plan_pool
from tests.properties.planner.oracle import CANDIDATES, Oracle
from tests.properties.planner.oracle_passes import after_step
from tests.properties.planner.strategies import snapshots

LONGER = int(os.environ.get("HISTORIES") or 0)
PHASES = (Phase.generate, Phase.shrink) if LONGER else (Phase.generate,)
"""To cut down what fails takes minutes."""


@pytest.mark.timeout(24 * 3600 if LONGER else 120)
@settings(
    max_examples=LONGER or 120,
    deadline=None,
    database=None,
    derandomize=not LONGER,
    phases=PHASES,
    suppress_health_check=list(HealthCheck),
)
@given(snapshots())
def test_every_step_is_the_one_that_the_rules_say(snapshot: PoolSnapshot) -> None:
    found = plan_pool(snapshot).steps
    _nobody_refused(snapshot, found)
    now, asked, ended = snapshot, -1, set[str]()
    for step in found:
        oracle = Oracle(now)
        if isinstance(step, ReassignVictim | Reprieve):
            assert step == oracle.next_orphan()
        elif isinstance(step, EndHold):
            assert step.owner in [owner.id for owner in oracle.unfillable_holds()]
            ended.add(step.owner)
        else:
            assert oracle.next_orphan() is None
            assert isinstance(step, Preempt), "nobody is over a limit here"
            assert _plain(step) == _plain(_expected(oracle, asked, ended))
            if step.waiter in {waiter.id for waiter in now.waiters}:
                asked = _places(now)[step.waiter]
            _lawful(oracle, step)
        now = after_step(now, step)
    _finished(now, asked, ended)


def _expected(oracle: Oracle, asked: int, ended: set[str]) -> Preempt | None:
    """The next decision, of those who stand behind the one who asked last; owners of holds that ended ask in the next pass."""
    places = _places(oracle.snapshot)
    return oracle.next_preemption(lambda waiter: waiter.id not in ended and (bool(oracle.hold(waiter)) or places[waiter.id] > asked))


def _plain(stop: Preempt | None) -> tuple[str, set[tuple[str, int, str]]] | None:
    if stop is None:
        return None
    return stop.waiter, {(one.request, one.fence, one.trigger.value) for one in stop.victims}


def _places(snapshot: PoolSnapshot) -> dict[str, int]:
    return {waiter.id: place for place, waiter in enumerate(Oracle(snapshot).queue())}


def _lawful(oracle: Oracle, stop: Preempt) -> None:
    """What must be true of any decision, whatever set was chosen."""
    waiter = next(one for one in oracle.queue() if one.id == stop.waiter)
    victims = [one for one in oracle.snapshot.allocations if one.id in {victim.request for victim in stop.victims}]
    assert oracle.fits(waiter, victims)
    assert oracle.lawful(waiter, victims)
    assert oracle.affordable(waiter, victims, oracle.max_victims())
    assert not oracle.superfluous(waiter, victims)
    assert not Oracle(after_step(oracle.snapshot, stop)).shortages(waiter)
    assert all(oracle.fits_unused_share(waiter, account) for account in stop.unused_share_accounts)
    assert not stop.reserved_accounts or oracle.lies_within_reserved(waiter, victims)
    for rest in stop.borrowed_conditions:
        more = rest.max_stack_exits - oracle.snapshot.accounts[rest.account].stack_exits.get(rest.key, 0)
        inside = [one for one in victims if rest.account in oracle.path(one) and one.amounts.get(rest.key)]
        assert 0 <= more < max(oracle.units_beyond(one, rest.account, rest.key) for one in inside), rest


def _finished(now: PoolSnapshot, asked: int, ended: set[str]) -> None:
    """Whoever was passed over has no set at all; those who left for a hold that ended may be seen to in the next pass."""
    oracle = Oracle(now)
    if all(one.leaving_for != "" for one in now.allocations):
        assert _expected(oracle, asked, ended) is None
        assert not oracle.unfillable_holds()


def _nobody_refused(snapshot: PoolSnapshot, found: Sequence[PlanStep]) -> None:
    """For whoever stands before the first who was served, there is no set at all."""
    if any(not isinstance(step, Preempt) for step in found):
        return
    served = [step.waiter for step in found if isinstance(step, Preempt)]
    oracle = Oracle(snapshot)
    for waiter in oracle.preemptors():
        if waiter.id in served[:1]:
            return
        assert not _any_set(oracle, waiter), f"{waiter.id} is refused"


def _any_set(oracle: Oracle, waiter: Waiter) -> bool:
    """Whether there is any set at all, budgets included; beyond the first candidates only what leaves them all counts."""
    if not oracle.shortages(waiter) or oracle.is_fixed_share_used_up(waiter) or oracle.is_backing_off():
        return False
    return len(oracle.candidates(waiter)) <= CANDIDATES and any(oracle.allowed_sets(waiter, oracle.max_victims()))
