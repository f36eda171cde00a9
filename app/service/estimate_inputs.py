"""A pool as it is played through to see when those who wait may start, made of what the ledger says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from app.domain.models import Request
from app.domain.names import component_id
from app.domain.snapshot import Allocation, Snapshot
from app.domain.snapshot import Hold as HoldSeen
from app.planner.account_tree import POLICY, Tree
from app.planner.estimates.pool_state import POOL, Hold, Leaving, Place, Running, Scene, Waiting, fixed
from app.planner.estimates.run_times import Past, step_of
from app.service.explain_text import listed

TOGETHER_MS = 300_000
"""Those who come no further apart belong together."""
LOOK_S = 2.0
"""How long a deadline may be over before somebody looks."""


def past_of(counts: Mapping[str, Mapping[int, int]], seen: Snapshot) -> tuple[dict[str, Past], Past]:
    """How long others have run, by component, and of all of them."""
    together: Counter[int] = Counter()
    for steps in counts.values():
        together.update(steps)
    ages: dict[str, list[int]] = {}
    for one in seen.allocations:
        ages.setdefault(one.component, []).append(step_of((seen.now_ms - one.granted_ms) / 1000))
    past = {component: Past(counts.get(component, {}), ages.get(component, ())) for component in counts.keys() | ages.keys()}
    return past, Past(together, [age for some in ages.values() for age in some])


def basis_of(running: Iterable[Allocation], waiting: Iterable[Request], everybody: Past) -> str:
    """What an estimate rests on, in words."""
    running = tuple(running)
    promised = sum(one.walltime_s is not None for one in running) + sum(one.walltime_s is not None for one in waiting)
    leaving = sum(one.leaving_for is not None for one in running)
    told = [f"{promised} promised walltime{'s' if promised > 1 else ''}"] if promised else []
    told += [f"{leaving} time{'s' if leaving > 1 else ''} to leave"] if leaving else []
    told += [f"{everybody.total} run time{'s' if everybody.total > 1 else ''} measured in this pool"] if everybody.total else []
    return listed(told) or "what is free now"


def scene_of(
    seen: Snapshot, waiting: Sequence[Request], told: Mapping[str, Request], past: Mapping[str, Past], everybody: Past
) -> Scene:
    """The pool, with those who wait, and those who were told to leave as they stand."""
    tree, places = Tree(seen.accounts), {one.id: at for at, one in enumerate(waiting)}
    batches = _batches(seen.allocations, waiting)
    holds = [hold for hold in seen.holds if hold.owner.id in places]
    numbers = {hold.owner.id: number for number, hold in enumerate(holds)}
    patient = next((one for one in waiting if one.id == seen.patient), None)
    leaving = {one.id: _leaving(told.get(one.id), one, seen, numbers) for one in seen.allocations}
    return Scene(
        rooms=_rooms(seen, tree),
        running=[_running(one, seen, tree, leaving[one.id], batches[one.id]) for one in seen.allocations],
        waiting=[_wait(one, tree, batches[one.id]) for one in waiting],
        past=past,
        everybody=everybody,
        strict=seen.terms.queueing == "strict",
        holds=[_hold(hold, places[hold.owner.id], tree) for hold in holds],
        patient=Hold(places[patient.id], _path(tree, _component(patient), preemptible=True)) if patient else None,
    )


def _rooms(seen: Snapshot, tree: Tree) -> dict[Place, int]:
    rooms = {}
    for name, account in seen.accounts.items():
        for key in tree.pool.limit:
            limit = tree.limit(name, key)
            if limit is not None:
                rooms[name, key] = limit - account.used.get(key, 0)
            if name.startswith(POLICY):
                rooms[fixed(name), key] = account.reserved.get(key, 0) - account.used_fixed.get(key, 0)
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


def _running(one: Allocation, seen: Snapshot, tree: Tree, leaving: Leaving | None, batch: int) -> Running:
    return Running(
        component=one.component,
        path=_path(tree, one.component, preemptible=one.preemptible),
        amounts=one.amounts,
        age_s=max(0.0, (seen.now_ms - one.granted_ms) / 1000),
        batch=batch,
        walltime_s=one.walltime_s,
        leaving=leaving,
    )


def _leaving(told: Request | None, one: Allocation, seen: Snapshot, holds: Mapping[str, int]) -> Leaving | None:
    """By when it goes. Who is told to save its work may put that off, may be given more time once, and then has its grace."""
    if told is None or told.deadline_ms is None or not one.leaving_for:
        return None
    due_s = max(0.0, (told.deadline_ms - seen.now_ms) / 1000) + LOOK_S
    gone_s, terms = due_s, seen.terms
    if told.directive == "checkpoint":
        more_s = 0 if told.extended else terms.checkpoint_timeout_s / 2
        gone_s += more_s + max(0, terms.max_deferral_s - told.deferred_s) + terms.grace_s + 2 * LOOK_S
    return Leaving(due_s, gone_s, holds.get(one.leaving_for))


def _wait(one: Request, tree: Tree, batch: int) -> Waiting:
    component = _component(one)
    path = _path(tree, component, preemptible=one.preemptible)
    return Waiting(component, path, one.resources, batch, one.walltime_s)


def _hold(hold: HoldSeen, owner: int, tree: Tree) -> Hold:
    brought = {(account, key): units for account, some in hold.brought.items() for key, units in some.items()}
    return Hold(owner, _path(tree, hold.owner.component, preemptible=True), brought)


def _path(tree: Tree, component: str, *, preemptible: bool) -> tuple[str, ...]:
    path = tree.paths.get(component, (POOL,))
    return path if preemptible or len(path) == 1 else (fixed(path[0]), *path)


def _component(one: Request) -> str:
    return component_id(one.component_type, one.component)
