"""Small random pools: a few policies that compete for the same few units, and a history until a plan is made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from app.domain.snapshot import AccountSnapshot, PlannerSettings, PoolSnapshot
from tests.properties.planner.costs import MINUTE_MS
from tests.properties.planner.ledger_model import ModelRequest, PoolLedger
from tests.properties.planner.oracle_passes import plan_steps

KEYS = ("gpu", "mem", "step_run")
COMPONENTS = ("t/a", "t/b", "t/c", "t/d")
PROFILES = ("batch", "batch", "batch", "training", "service", "sensitive", "interactive")
Operation = tuple[Any, ...]

rarely = st.sampled_from((False,) * 5 + (True,))
mostly_none = st.sampled_from((True,) * 4 + (False,))


@st.composite
def pool_settings(draw: st.DrawFn) -> PlannerSettings:
    """Draw the settings of a pool, most of them defaults."""

    def at_times(values: st.SearchStrategy[Any], otherwise: Any) -> Any:
        return draw(values) if draw(rarely) else otherwise

    discipline = draw(st.sampled_from(("reserved", "classes")))
    return PlannerSettings(
        discipline=discipline,
        order=draw(st.sampled_from(("share_first", "share_first", "priority_first"))),
        queueing=draw(st.sampled_from(("best_effort", "best_effort", "best_effort", "strict"))),
        near_completion_s=at_times(st.sampled_from((60, 600)), 0),
        min_runtime_s=at_times(st.sampled_from((60, 300)), 0),
        max_victims=at_times(st.integers(1, 3), None if discipline == "reserved" else draw(st.sampled_from((3, None)))),
        max_preemptions_per_minute=at_times(st.integers(1, 4), None),
        backoff_s=at_times(st.sampled_from((5, 90)), 0),
        cost_key=draw(st.sampled_from(("gpu", "gpu", "mem"))),
        value_per_class=at_times(st.integers(1, 60), None),
    )


@st.composite
def accounts(draw: st.DrawFn) -> dict[str, AccountSnapshot]:
    """Draw a pool with groups, nested up to two deep, and policies; the numbers agree."""
    capacity = {"gpu": draw(st.sampled_from((6, 4, 5, 7, 8, 10, 12, 3, 2)))}
    if draw(st.booleans()):
        capacity["mem"] = draw(st.integers(2, 6))
    if draw(rarely):
        capacity["step_run"] = draw(st.integers(3, 8))
    rows: list[dict[str, Any]] = []
    names = ("group:g", "group:h", "group:i")[: draw(st.sampled_from((0, 0, 1, 2, 3)))]
    for name in names:
        tops = ["pool", *(row["name"] for row in rows if row["parent"] == "pool")]
        rows.append({"name": name, "parent": draw(st.sampled_from(tops)), **draw(_numbers(capacity))})
    for component in COMPONENTS[: draw(st.sampled_from((3, 2, 4, 1)))]:
        parent = draw(st.sampled_from(("pool", *names)))
        rank = {"priority": draw(st.sampled_from((1, 2, 9, 0, 1))), "profile": draw(st.sampled_from(PROFILES))}
        rows.append({"name": f"policy:{component}", "parent": parent, **rank, **draw(_numbers(capacity))})
    _agree(capacity, rows)
    empty: dict[str, Any] = {"used": {}, "used_fixed": {}, "units_on_hold": {}, "stack_exits": {}}
    pool = AccountSnapshot("pool", None, {}, capacity, **empty)
    return {"pool": pool} | {row["name"]: AccountSnapshot(**row, **empty) for row in rows}


def _numbers(capacity: dict[str, int]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw reserved units and limits for the keys of the pool."""
    keys = st.sampled_from(sorted(capacity))
    gpus = st.fixed_dictionaries({"gpu": st.sampled_from((2, 3, 1, 4, 0))})
    return st.fixed_dictionaries(
        {
            "reserved": st.one_of(gpus, st.just({}), gpus, st.dictionaries(keys, st.integers(0, 3), max_size=2)),
            "limit": st.one_of(st.just({}), st.just({}), st.dictionaries(keys, st.integers(1, 6), max_size=2)),
        }
    )


def _agree(capacity: dict[str, int], rows: list[dict[str, Any]]) -> None:
    """Make the numbers consistent: a parent has what its children reserve, and no limit is below that or beyond the pool."""

    def of_children(name: str, key: str) -> int:
        return sum(row["reserved"].get(key, 0) for row in rows if row["parent"] == name)

    for row in reversed(rows):
        for key in capacity:
            if units := max(row["reserved"].get(key, 0), of_children(row["name"], key)):
                row["reserved"] = {**row["reserved"], key: units}
    for key in capacity:
        capacity[key] = max(capacity[key], of_children("pool", key))
    for row in rows:
        limits = {key: max(units, row["reserved"].get(key, 0)) for key, units in row["limit"].items()}
        row["limit"] = {key: min(units, capacity[key]) for key, units in limits.items()}


@st.composite
def requests(draw: st.DrawFn) -> ModelRequest:
    """Draw a request of any class, mostly preemptible."""
    amounts = {"gpu": draw(st.sampled_from((0, 1, 1, 2, 2, 3, 4))), "mem": draw(st.sampled_from((0, 0, 0, 1, 2)))}
    amounts = {key: units for key, units in amounts.items() if units} or {"gpu": 1}
    plain = draw(mostly_none)
    return ModelRequest(
        component=draw(st.sampled_from(COMPONENTS)),
        amounts=amounts | {"step_run": 1},
        preemptible=draw(st.sampled_from((True, True, True, True, False))),
        preemption_class=draw(st.sampled_from((5, 5, 0, 1, 3, 6, 7, 8, 9, 10))),
        checkpoint=draw(st.sampled_from(("none", "manual", "auto"))),
        checkpoint_minutes=None if plain else draw(st.integers(1, 20)),
        walltime_s=None if draw(st.booleans()) else draw(st.sampled_from((270, 630, 3630, 36030))),
        chain=None if plain else draw(st.sampled_from(("x", "y"))),
    )


indexes = st.integers(0, 11)
submissions = st.tuples(st.just("submit"), requests())
operations = st.one_of(
    st.tuples(st.sampled_from(("release", "cancel", "leave", "save")), indexes),
    st.tuples(st.just("resize"), st.sampled_from(("gpu", "mem")), st.integers(2, 10)),
    st.tuples(st.just("pass"), st.integers(1, 12)),
    st.tuples(st.just("leave"), indexes),
    st.tuples(st.just("plan")),
    st.tuples(st.just("plan")),
)
histories = st.lists(st.one_of(submissions, submissions, submissions, operations), min_size=10, max_size=30)
crowds = st.lists(submissions, min_size=6, max_size=12)
newcomers = st.lists(submissions, min_size=1, max_size=4)


def apply_operation(ledger: PoolLedger, operation: Operation) -> None:
    """Apply one operation to a pool; its object is an index modulo the number of objects."""
    if operation[0] == "submit":
        if len(ledger.allocations) < 12 and len(ledger.waiters) < 6:
            components = [name.removeprefix("policy:") for name in ledger.accounts if name.startswith("policy:")]
            ledger.submit(
                replace(operation[1], component=components[COMPONENTS.index(operation[1].component) % len(components)])
            )
    elif operation[0] == "pass":
        ledger.now_ms += operation[1] * MINUTE_MS
    elif operation[0] == "resize":
        if operation[1] in ledger.accounts["pool"].limit:
            ledger.resize(operation[1], operation[2])
    elif operation[0] == "plan":
        for step in plan_steps(ledger.snapshot()):
            ledger.take_step(step)
    else:
        _apply_to_request(ledger, operation[0], operation[1])


def _apply_to_request(ledger: PoolLedger, name: str, number: int) -> None:
    """Apply an operation to a waiter or an allocation."""
    ids = {
        "cancel": sorted(ledger.waiters),
        "leave": sorted(allocation.id for allocation in ledger.allocations.values() if allocation.leaving_for is not None),
    }.get(name, sorted(ledger.allocations))
    if ids:
        getattr(ledger, name)(ids[number % len(ids)])


@st.composite
def ledgers(draw: st.DrawFn) -> PoolLedger:
    """Draw a pool with a history."""
    ledger = PoolLedger(draw(pool_settings()), draw(accounts()))
    for operation in (*draw(crowds), *draw(histories), *draw(newcomers)):
        apply_operation(ledger, operation)
    return ledger


def snapshots() -> st.SearchStrategy[PoolSnapshot]:
    """Draw the snapshot of one pool at one moment."""
    return ledgers().map(PoolLedger.snapshot)
