"""Small random pools of discipline `fair_share`: a few policies that compete for the same few units, and a history."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from app.domain.snapshot import AccountSnapshot, PlannerSettings
from tests.properties.planner.fair_ledger_model import FairShareLedger
from tests.properties.planner.ledger_model import ModelRequest

Operation = tuple[Any, ...]
SECOND_MS = 1000
OFTEN = ("submit", "submit", "submit", "release", "cancel", "save", "leave", "leave", "pass", "pass", "plan", "change")
SETTINGS: dict[str, tuple[float, tuple[str, ...]]] = {
    "aggressive_starvation": (1, ("0", "1")),
    "fair_share_tolerance": (1, ("1", "0.5", "0.8", "0")),
    "starvation_timeout_s": (1, ("0", "30", "300")),
    "aggressive_starvation_timeout_s": (0.5, ("0", "60", "600")),
    "preemption_threshold": (0.5, ("0.5", "1", "1.5", "2", "0")),
    "aggressive_preemption_threshold": (0.5, ("0", "0.2", "0.5", "1")),
    "allow_aggressive_preemption": (0.5, ("0", "1")),
    "non_preemptible_usage_threshold": (0.3, ("gpu=1", "gpu=2")),
    "over_limit": (0.25, ("keep", "evict")),
}
"""The settings of an account: how often, compared with others, and the values."""


@dataclass
class PoolHistory:
    """The set-up of a pool, and the operations of its history."""

    settings: PlannerSettings
    capacity: dict[str, int]
    accounts: list[dict[str, Any]]
    pool_settings: dict[str, str]
    operations: list[Operation] = field(default_factory=list)
    leaves_at_once: bool = True
    choices: list[int] = field(default_factory=list)

    def new_ledger(self) -> FairShareLedger:
        """Return the pool with nothing in it."""
        empty: dict[str, Any] = {"used": {}, "used_fixed": {}, "units_on_hold": {}, "stack_exits": {}}
        pool = AccountSnapshot("pool", None, {}, dict(self.capacity), settings=dict(self.pool_settings), **empty)
        accounts = {
            row["name"]: AccountSnapshot(creation_number=number, **row, **empty) for number, row in enumerate(self.accounts, 1)
        }
        return FairShareLedger(self.settings, {"pool": pool} | accounts)

    def components(self) -> list[str]:
        """Return the components with a policy."""
        return [row["name"].removeprefix("policy:") for row in self.accounts if row["name"].startswith("policy:")]


class HistoryGenerator:
    """Generates histories. `crowded`: all policies ask much, and starve soon; `plain`: only the pool has settings."""

    def __init__(self, seed: int, *, groups: bool = True, crowded: bool = False, plain: bool = False) -> None:
        self._random, self._groups, self._crowded, self._plain = Random(seed), groups, crowded, plain

    def history(self) -> PoolHistory:
        """Return a random history."""
        random = self._random
        capacity = {"gpu": random.randint(2, 10)}
        if random.random() < 0.4:
            capacity["mem"] = random.randint(2, 8)
        accounts = self._accounts(capacity)
        history = PoolHistory(self._terms(), capacity, accounts, self._pool_says(), leaves_at_once=random.random() < 0.5)
        for component in random.sample(history.components(), random.choice((1, 1, 2))):
            most = random.choice((1, 1, 2, 3))
            history.operations += [self._submit(history, component, most) for _ in range(random.randint(3, 8))]
        history.operations += [self._op(history) for _ in range(random.randint(0, 14))]
        history.operations += [self._submit(history) for _ in range(random.randint(1, 5))]
        if self._crowded:
            for component in history.components():
                most = random.choice((1, 2, 4))
                history.operations += [self._submit(history, component, most) for _ in range(random.randint(1, 4))]
        history.choices = [random.randint(0, 11) for _ in range(12)]
        return history

    def _some(self, chance: float) -> bool:
        return self._random.random() < chance

    def _terms(self) -> PlannerSettings:
        by_chance, random, rich = self._some, self._random, not (self._plain or self._crowded)
        return PlannerSettings(
            discipline="fair_share",
            queueing="strict" if rich and by_chance(0.15) else "best_effort",
            min_runtime_s=random.choice((60, 300)) if rich and by_chance(0.1) else 0,
            max_victims=random.randint(1, 3) if rich and by_chance(0.15) else None,
            max_preemptions_per_minute=random.randint(1, 4) if rich and by_chance(0.1) else None,
            backoff_s=random.choice((0, 5, 5, 90)),
        )

    def _pool_says(self) -> dict[str, str]:
        settings = self._says(0.35, "pool")
        if self._crowded:
            settings |= {
                "aggressive_starvation": self._random.choice("011"),
                "starvation_timeout_s": self._random.choice(("0", "30")),
            }
            settings["fair_share_tolerance"] = self._random.choice(("1", "0.8", "0.9"))
            if self._some(0.4):
                settings["preemption_threshold"] = self._random.choice(("0.5", "0.3", "0.8", "1.2"))
        return settings

    def _says(self, chance: float, kind: str) -> dict[str, str]:
        """Return the settings of an account; `chance` of a setting that is often set."""
        if self._plain and kind != "pool":
            return {}
        settings = {name: self._random.choice(values) for name, (part, values) in SETTINGS.items() if self._some(chance * part)}
        if kind == "pool" and "aggressive_starvation" in settings:
            settings["aggressive_starvation"] = "1"
        return settings

    def _accounts(self, capacity: dict[str, int]) -> list[dict[str, Any]]:
        random, rows = self._random, list[dict[str, Any]]()
        for name in ("group:g", "group:h")[: random.choice((0, 1, 2, 2)) if self._groups else 0]:
            parent = "group:g" if name == "group:h" and self._some(0.3) else "pool"
            mode = "fifo" if self._some(0.25) else "fair_share"
            rows.append(
                {"name": name, "parent": parent, "mode": mode, **self._numbers(capacity), "settings": self._says(0.15, "group")}
            )
        parents = ["pool", *(row["name"] for row in rows)]
        for letter in "abcde"[: random.randint(2, 5)]:
            numbers = self._numbers(capacity)
            rows.append(
                {
                    "name": f"policy:t/{letter}",
                    "parent": random.choice(parents),
                    **numbers,
                    "settings": self._says(0.12, "policy"),
                }
            )
        _agree(capacity, rows)
        return rows

    def _numbers(self, capacity: dict[str, int]) -> dict[str, Any]:
        random = self._random
        reserved = {key: random.randint(0, 3) for key in capacity if self._some(0.3)}
        limit = {key: random.randint(1, 6) for key in capacity if self._some(0.15)}
        return {"reserved": reserved, "limit": limit, "weight": random.choice((1, 1, 1, 2, 3))}

    def _submit(self, history: PoolHistory, component: str = "", most: int = 4) -> Operation:
        random = self._random
        amounts = {"gpu": min(most, random.choice((1, 1, 1, 2, 2, 3, 4, 0)))}
        if "mem" in history.capacity and self._some(0.6):
            amounts["mem"] = random.randint(1, 3)
        amounts = {key: units for key, units in amounts.items() if units} or {"gpu": 1}
        request = ModelRequest(
            component=component or random.choice(history.components()),
            amounts=amounts | {"step_run": 1},
            preemptible=not self._some(0.12),
            preemption_class=random.choice((5, 5, 5, 5, 3, 8, 10 if self._some(0.3) else 5)),
            chain=random.choice("xy") if self._some(0.08) else None,
        )
        return ("submit", request)

    def _op(self, history: PoolHistory) -> Operation:
        random = self._random
        name = random.choice(OFTEN)
        if name == "submit":
            return self._submit(history)
        if name == "pass":
            return ("pass", random.choice((1, 10, 31, 31, 70, 125, 301)))
        if name == "change":
            return self._change(history) if self._some(0.5) else ("plan",)
        return (name, random.randint(0, 11))

    def _change(self, history: PoolHistory) -> Operation:
        key = self._random.choice(sorted(history.capacity))
        if self._some(0.5):
            return ("resize", key, self._random.randint(2, 10))
        return ("lower", self._random.choice(history.accounts)["name"], key, self._random.randint(0, 4))


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


def apply_operation(ledger: FairShareLedger, operation: Operation, planned: Any) -> None:
    """Apply one operation to a pool; its object is an index modulo the number of objects."""
    if operation[0] == "submit":
        if len(ledger.allocations) + len(ledger.waiters) < 18:
            ledger.submit(operation[1])
    elif operation[0] == "pass":
        ledger.now_ms += operation[1] * SECOND_MS
    elif operation[0] == "resize":
        ledger.resize(operation[1], operation[2])
    elif operation[0] == "lower":
        ledger.lower_limit(*operation[1:])
    elif operation[0] == "plan":
        plan = planned(ledger.snapshot())
        ledger.publish(plan.publication)
        for step in plan.steps[:1]:
            if not ledger.refusal(step):
                ledger.take_step(step)
    else:
        ids = {
            "cancel": sorted(ledger.waiters),
            "leave": sorted(allocation.id for allocation in ledger.allocations.values() if allocation.leaving_for is not None),
        }.get(operation[0], sorted(ledger.allocations))
        if ids:
            getattr(ledger, operation[0])(ids[operation[1] % len(ids)])
