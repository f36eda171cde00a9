"""The inputs of an estimate: the state of a pool for the simulation, built from a snapshot of the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from app.domain.models import Request
from app.domain.names import component_id
from app.domain.snapshot import Allocation, PoolSnapshot
from app.domain.snapshot import HoldSnapshot as HoldSnapshot
from app.planner.account_tree import POLICY, AccountTree
from app.planner.estimates.pool_state import (
    POOL,
    AccountKey,
    LeavingDeadline,
    SimulatedAllocation,
    SimulatedHold,
    SimulatedWaiter,
    SimulationState,
    fixed_share_account,
)
from app.planner.estimates.run_times import RunTimes, step_of
from app.service.explain_text import join_words

BATCH_GAP_MS = 300_000
"""The most milliseconds between two equal requests of a component that belong to one batch."""
REACTION_S = 2.0
"""Seconds from a deadline to the reconcile that enforces it, at most."""


def build_run_times(counts: Mapping[str, Mapping[int, int]], snapshot: PoolSnapshot) -> tuple[dict[str, RunTimes], RunTimes]:
    """Return the measured run times by component, and those of all components together."""
    all_counts: Counter[int] = Counter()
    for steps in counts.values():
        all_counts.update(steps)
    ages: dict[str, list[int]] = {}
    for allocation in snapshot.allocations:
        ages.setdefault(allocation.component, []).append(step_of((snapshot.now_ms - allocation.granted_ms) / 1000))
    run_times = {
        component: RunTimes(counts.get(component, {}), ages.get(component, ())) for component in counts.keys() | ages.keys()
    }
    return run_times, RunTimes(all_counts, [age for component_ages in ages.values() for age in component_ages])


def describe_basis(
    allocations: Iterable[Allocation], waiters: Iterable[Request], all_run_times: RunTimes, *, is_rough: bool = False
) -> str:
    """Return the facts that an estimate rests on, in words."""
    allocations = tuple(allocations)
    promised = sum(item.walltime_s is not None for item in allocations) + sum(item.walltime_s is not None for item in waiters)
    leaving = sum(item.leaving_for is not None for item in allocations)
    parts = [f"{promised} promised walltime{'s' if promised > 1 else ''}"] if promised else []
    parts += [f"{leaving} {'deadlines of victims' if leaving > 1 else 'deadline of a victim'}"] if leaving else []
    if all_run_times.total or is_rough:
        count = f"{'only ' if is_rough else ''}{all_run_times.total}" if all_run_times.total else "no"
        parts.append(f"{count} run time{'s' if all_run_times.total > 1 else ''} measured in this pool")
    return join_words(parts) or "the free units"


def build_pool_state(
    snapshot: PoolSnapshot,
    waiters: Sequence[Request],
    victims: Mapping[str, Request],
    run_times: Mapping[str, RunTimes],
    all_run_times: RunTimes,
) -> SimulationState:
    """Return the state of the pool with its waiters and the deadlines of its victims."""
    tree, indexes = AccountTree(snapshot.accounts), {item.id: index for index, item in enumerate(waiters)}
    batches = _batch_numbers(snapshot.allocations, waiters)
    holds = [hold for hold in snapshot.holds if hold.owner.id in indexes]
    numbers = {hold.owner.id: number for number, hold in enumerate(holds)}
    patience_owner = next((item for item in waiters if item.id == snapshot.patience_hold_owner), None)
    leaving = {item.id: _leaving_deadline(victims.get(item.id), item, snapshot, numbers) for item in snapshot.allocations}
    return SimulationState(
        free_units=_free_units(snapshot, tree),
        allocations=[
            _simulated_allocation(item, snapshot, tree, leaving[item.id], batches[item.id]) for item in snapshot.allocations
        ],
        waiters=[_simulated_waiter(item, tree, batches[item.id]) for item in waiters],
        run_times=run_times,
        all_run_times=all_run_times,
        is_strict=snapshot.settings.queueing == "strict",
        holds=[_simulated_hold(hold, indexes[hold.owner.id], tree) for hold in holds],
        patience_hold=SimulatedHold(
            indexes[patience_owner.id], _account_path(tree, _component_of(patience_owner), preemptible=True)
        )
        if patience_owner
        else None,
    )


def _free_units(snapshot: PoolSnapshot, tree: AccountTree) -> dict[AccountKey, int]:
    free_units = {}
    for name, account in snapshot.accounts.items():
        for key in tree.pool.limit:
            limit = tree.limit(name, key)
            if limit is not None:
                free_units[name, key] = limit - account.used.get(key, 0)
            if name.startswith(POLICY):
                free_units[fixed_share_account(name), key] = account.reserved.get(key, 0) - account.used_fixed.get(key, 0)
    return free_units


def _batch_numbers(allocations: Iterable[Allocation], waiters: Iterable[Request]) -> dict[str, int]:
    """Return request → number of its batch. A batch: equal requests of a component that were submitted soon after each other.

    For an allocation, the time of its grant counts as the time of its submit."""
    arrivals: dict[tuple[object, ...], list[tuple[int, str]]] = {}
    for allocation in allocations:
        arrivals.setdefault((allocation.component, tuple(allocation.amounts.items())), []).append(
            (allocation.granted_ms, allocation.id)
        )
    for waiter in waiters:
        arrivals.setdefault((_component_of(waiter), tuple(waiter.resources.items())), []).append(
            (waiter.submitted_ms, waiter.id)
        )
    batches, number = {}, 0
    for times in arrivals.values():
        previous_ms = None
        for time_ms, request in sorted(times):
            number += previous_ms is None or time_ms - previous_ms > BATCH_GAP_MS
            batches[request], previous_ms = number, time_ms
    return batches


def _simulated_allocation(
    allocation: Allocation, snapshot: PoolSnapshot, tree: AccountTree, leaving: LeavingDeadline | None, batch: int
) -> SimulatedAllocation:
    return SimulatedAllocation(
        component=allocation.component,
        path=_account_path(tree, allocation.component, preemptible=allocation.preemptible),
        amounts=allocation.amounts,
        age_s=max(0.0, (snapshot.now_ms - allocation.granted_ms) / 1000),
        batch=batch,
        walltime_s=allocation.walltime_s,
        leaving=leaving,
    )


def _leaving_deadline(
    victim: Request | None, allocation: Allocation, snapshot: PoolSnapshot, holds: Mapping[str, int]
) -> LeavingDeadline | None:
    """Return the deadline of a victim; None if the allocation is no victim.

    The latest time counts everything that a checkpoint may add: deferrals, one extension, and the grace period."""
    if victim is None or victim.deadline_ms is None or not allocation.leaving_for:
        return None
    due_s = max(0.0, (victim.deadline_ms - snapshot.now_ms) / 1000) + REACTION_S
    latest_s, settings = due_s, snapshot.settings
    if victim.directive == "checkpoint":
        more_s = 0 if victim.extended else settings.checkpoint_timeout_s / 2
        latest_s += more_s + max(0, settings.max_deferral_s - victim.deferred_s) + settings.grace_s + 2 * REACTION_S
    return LeavingDeadline(due_s, latest_s, holds.get(allocation.leaving_for))


def _simulated_waiter(request: Request, tree: AccountTree, batch: int) -> SimulatedWaiter:
    component = _component_of(request)
    path = _account_path(tree, component, preemptible=request.preemptible)
    return SimulatedWaiter(component, path, request.resources, batch, request.walltime_s)


def _simulated_hold(hold: HoldSnapshot, owner: int, tree: AccountTree) -> SimulatedHold:
    freed_units = {(account, key): units for account, amounts in hold.freed_units.items() for key, units in amounts.items()}
    return SimulatedHold(owner, _account_path(tree, hold.owner.component, preemptible=True), freed_units)


def _account_path(tree: AccountTree, component: str, *, preemptible: bool) -> tuple[str, ...]:
    path = tree.paths.get(component, (POOL,))
    return path if preemptible or len(path) == 1 else (fixed_share_account(path[0]), *path)


def _component_of(request: Request) -> str:
    return component_id(request.component_type, request.component)
