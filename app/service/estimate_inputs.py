"""A pool as it is played through to see when those who wait may start, made of what the ledger says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from app.domain.models import Request
from app.domain.names import component_id
from app.domain.snapshot import Allocation, PoolSnapshot
from app.domain.snapshot import HoldSnapshot as HoldSeen
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

TOGETHER_MS = 300_000
"""Those who come no further apart belong together."""
LOOK_S = 2.0
"""How long a deadline may be over before somebody looks."""


def build_run_times(counts: Mapping[str, Mapping[int, int]], seen: PoolSnapshot) -> tuple[dict[str, RunTimes], RunTimes]:
    """How long others have run, by component, and of all of them."""
    together: Counter[int] = Counter()
    for steps in counts.values():
        together.update(steps)
    ages: dict[str, list[int]] = {}
    for one in seen.allocations:
        ages.setdefault(one.component, []).append(step_of((seen.now_ms - one.granted_ms) / 1000))
    past = {component: RunTimes(counts.get(component, {}), ages.get(component, ())) for component in counts.keys() | ages.keys()}
    return past, RunTimes(together, [age for some in ages.values() for age in some])


def describe_basis(running: Iterable[Allocation], waiting: Iterable[Request], everybody: RunTimes) -> str:
    """What an estimate rests on, in words."""
    running = tuple(running)
    promised = sum(one.walltime_s is not None for one in running) + sum(one.walltime_s is not None for one in waiting)
    leaving = sum(one.leaving_for is not None for one in running)
    told = [f"{promised} promised walltime{'s' if promised > 1 else ''}"] if promised else []
    told += [f"{leaving} time{'s' if leaving > 1 else ''} to leave"] if leaving else []
    told += [f"{everybody.total} run time{'s' if everybody.total > 1 else ''} measured in this pool"] if everybody.total else []
    return join_words(told) or "what is free now"


def build_pool_state(
    seen: PoolSnapshot, waiting: Sequence[Request], told: Mapping[str, Request], past: Mapping[str, RunTimes], everybody: RunTimes
) -> SimulationState:
    """The pool, with those who wait, and those who were told to leave as they stand."""
    tree, places = AccountTree(seen.accounts), {one.id: at for at, one in enumerate(waiting)}
    batches = _batches(seen.allocations, waiting)
    holds = [hold for hold in seen.holds if hold.owner.id in places]
    numbers = {hold.owner.id: number for number, hold in enumerate(holds)}
    patient = next((one for one in waiting if one.id == seen.patience_hold_owner), None)
    leaving = {one.id: _leaving(told.get(one.id), one, seen, numbers) for one in seen.allocations}
    return SimulationState(
        free_units=_rooms(seen, tree),
        allocations=[_running(one, seen, tree, leaving[one.id], batches[one.id]) for one in seen.allocations],
        waiters=[_wait(one, tree, batches[one.id]) for one in waiting],
        run_times=past,
        all_run_times=everybody,
        is_strict=seen.settings.queueing == "strict",
        holds=[_hold(hold, places[hold.owner.id], tree) for hold in holds],
        patience_hold=SimulatedHold(places[patient.id], _path(tree, _component(patient), preemptible=True)) if patient else None,
    )


def _rooms(seen: PoolSnapshot, tree: AccountTree) -> dict[AccountKey, int]:
    rooms = {}
    for name, account in seen.accounts.items():
        for key in tree.pool.limit:
            limit = tree.limit(name, key)
            if limit is not None:
                rooms[name, key] = limit - account.used.get(key, 0)
            if name.startswith(POLICY):
                rooms[fixed_share_account(name), key] = account.reserved.get(key, 0) - account.used_fixed.get(key, 0)
    return rooms


def _batches(running: Iterable[Allocation], waiting: Iterable[Request]) -> dict[str, int]:
    """Whose number is the same came one soon after the other, from the same component and asking the same: as what was granted
    at once came when it was granted."""
    came: dict[tuple[object, ...], list[tuple[int, str]]] = {}
    for held in running:
        came.setdefault((held.component, tuple(held.amounts.items())), []).append((held.granted_ms, held.id))
    for one in waiting:
        came.setdefault((_component(one), tuple(one.resources.items())), []).append((one.submitted_ms, one.id))
    batches, number = {}, 0
    for times in came.values():
        before = None
        for at, request in sorted(times):
            number += before is None or at - before > TOGETHER_MS
            batches[request], before = number, at
    return batches


def _running(one: Allocation, seen: PoolSnapshot, tree: AccountTree, leaving: LeavingDeadline | None, batch: int) -> SimulatedAllocation:
    return SimulatedAllocation(
        component=one.component,
        path=_path(tree, one.component, preemptible=one.preemptible),
        amounts=one.amounts,
        age_s=max(0.0, (seen.now_ms - one.granted_ms) / 1000),
        batch=batch,
        walltime_s=one.walltime_s,
        leaving=leaving,
    )


def _leaving(told: Request | None, one: Allocation, seen: PoolSnapshot, holds: Mapping[str, int]) -> LeavingDeadline | None:
    """By when it goes. Who is told to save its work may put that off, may be given more time once, and then has its grace."""
    if told is None or told.deadline_ms is None or not one.leaving_for:
        return None
    due_s = max(0.0, (told.deadline_ms - seen.now_ms) / 1000) + LOOK_S
    gone_s, terms = due_s, seen.settings
    if told.directive == "checkpoint":
        more_s = 0 if told.extended else terms.checkpoint_timeout_s / 2
        gone_s += more_s + max(0, terms.max_deferral_s - told.deferred_s) + terms.grace_s + 2 * LOOK_S
    return LeavingDeadline(due_s, gone_s, holds.get(one.leaving_for))


def _wait(one: Request, tree: AccountTree, batch: int) -> SimulatedWaiter:
    component = _component(one)
    path = _path(tree, component, preemptible=one.preemptible)
    return SimulatedWaiter(component, path, one.resources, batch, one.walltime_s)


def _hold(hold: HoldSeen, owner: int, tree: AccountTree) -> SimulatedHold:
    brought = {(account, key): units for account, some in hold.freed_units.items() for key, units in some.items()}
    return SimulatedHold(owner, _path(tree, hold.owner.component, preemptible=True), brought)


def _path(tree: AccountTree, component: str, *, preemptible: bool) -> tuple[str, ...]:
    path = tree.paths.get(component, (POOL,))
    return path if preemptible or len(path) == 1 else (fixed_share_account(path[0]), *path)


def _component(one: Request) -> str:
    return component_id(one.component_type, one.component)
