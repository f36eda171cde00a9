"""The planner compared with an oracle that searches all sets: the same decisions in the same order, step by step.

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
    max_examples=LONGER or 80,
    database=None,
    derandomize=not LONGER,
    phases=PHASES,
    suppress_health_check=list(HealthCheck),
)
@given(snapshots())
def test_every_step_is_the_one_that_the_rules_say(snapshot: PoolSnapshot) -> None:
    steps = plan_pool(snapshot).steps
    _check_refusals(snapshot, steps)
    now, last_position, former_owners = snapshot, -1, set[str]()
    for step in steps:
        oracle = Oracle(now)
        if isinstance(step, ReassignVictim | Reprieve):
            assert step == oracle.next_orphan()
        elif isinstance(step, EndHold):
            assert step.owner in [owner.id for owner in oracle.unfillable_holds()]
            former_owners.add(step.owner)
        else:
            assert oracle.next_orphan() is None
            assert isinstance(step, Preempt), "no account is over a limit here"
            assert _victims_of(step) == _victims_of(_expected_preemption(oracle, last_position, former_owners))
            if step.waiter in {waiter.id for waiter in now.waiters}:
                last_position = _queue_positions(now)[step.waiter]
            _check_preemption(oracle, step)
        now = after_step(now, step)
    _check_last_state(now, last_position, former_owners)


def _expected_preemption(oracle: Oracle, last_position: int, former_owners: set[str]) -> Preempt | None:
    """Return the next decision for waiters behind the last preemptor; owners of ended holds ask in the next pass."""
    positions = _queue_positions(oracle.snapshot)
    return oracle.next_preemption(
        lambda waiter: waiter.id not in former_owners and (bool(oracle.hold(waiter)) or positions[waiter.id] > last_position)
    )


def _victims_of(step: Preempt | None) -> tuple[str, set[tuple[str, int, str]]] | None:
    if step is None:
        return None
    return step.waiter, {(victim.request, victim.fence, victim.trigger.value) for victim in step.victims}


def _queue_positions(snapshot: PoolSnapshot) -> dict[str, int]:
    return {waiter.id: place for place, waiter in enumerate(Oracle(snapshot).queue())}


def _check_preemption(oracle: Oracle, step: Preempt) -> None:
    """Check the conditions of every decision, for any chosen set."""
    waiter = next(allocation for allocation in oracle.queue() if allocation.id == step.waiter)
    victims = [
        allocation for allocation in oracle.snapshot.allocations if allocation.id in {victim.request for victim in step.victims}
    ]
    assert oracle.fits(waiter, victims)
    assert oracle.lawful(waiter, victims)
    assert oracle.affordable(waiter, victims, oracle.max_victims())
    assert not oracle.superfluous(waiter, victims)
    assert not Oracle(after_step(oracle.snapshot, step)).shortages(waiter)
    assert all(oracle.fits_unused_share(waiter, account) for account in step.unused_share_accounts)
    assert not step.reserved_accounts or oracle.lies_within_reserved(waiter, victims)
    for condition in step.borrowed_conditions:
        exits_left = condition.max_stack_exits - oracle.snapshot.accounts[condition.account].stack_exits.get(condition.key, 0)
        inside = [
            allocation
            for allocation in victims
            if condition.account in oracle.path(allocation) and allocation.amounts.get(condition.key)
        ]
        assert (
            0 <= exits_left < max(oracle.units_beyond(allocation, condition.account, condition.key) for allocation in inside)
        ), condition


def _check_last_state(now: PoolSnapshot, last_position: int, former_owners: set[str]) -> None:
    """Check that waiters without a decision have no allowed set; victims of an ended hold may wait for the next pass."""
    oracle = Oracle(now)
    if all(allocation.leaving_for != "" for allocation in now.allocations):
        assert _expected_preemption(oracle, last_position, former_owners) is None
        assert not oracle.unfillable_holds()


def _check_refusals(snapshot: PoolSnapshot, steps: Sequence[PlanStep]) -> None:
    """Check that no waiter before the first served one has an allowed set."""
    if any(not isinstance(step, Preempt) for step in steps):
        return
    served = [step.waiter for step in steps if isinstance(step, Preempt)]
    oracle = Oracle(snapshot)
    for waiter in oracle.preemptors():
        if waiter.id in served[:1]:
            return
        assert not _any_set(oracle, waiter), f"{waiter.id} is refused"


def _any_set(oracle: Oracle, waiter: Waiter) -> bool:
    """True if there is an allowed set, budgets included; beyond the first candidates only the set of all of them counts."""
    if not oracle.shortages(waiter) or oracle.is_fixed_share_used_up(waiter) or oracle.is_backing_off():
        return False
    return len(oracle.candidates(waiter)) <= CANDIDATES and any(oracle.allowed_sets(waiter, oracle.max_victims()))
