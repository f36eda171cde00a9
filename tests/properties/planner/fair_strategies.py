"""Small pools that share fairly, by chance: a few policies that want the same few units, and a past."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from app.domain.snapshot import AccountSnapshot, PlannerSettings
from tests.properties.planner.fair_ledger_model import FairShareLedger
from tests.properties.planner.ledger_model import ModelRequest

Op = tuple[Any, ...]
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
"""What an account may say: how often compared with others, and what."""


@dataclass
class World:
    """How a pool is set up, and what happened in it."""

    terms: PlannerSettings
    capacity: dict[str, int]
    accounts: list[dict[str, Any]]
    said: dict[str, str]
    ops: list[Op] = field(default_factory=list)
    at_once: bool = True
    choices: list[int] = field(default_factory=list)

    def book(self) -> FairShareLedger:
        """The pool with nothing in it."""
        empty: dict[str, Any] = {"used": {}, "used_fixed": {}, "units_on_hold": {}, "stack_exits": {}}
        pool = AccountSnapshot("pool", None, {}, dict(self.capacity), settings=dict(self.said), **empty)
        others = {one["name"]: AccountSnapshot(creation_number=at, **one, **empty) for at, one in enumerate(self.accounts, 1)}
        return FairShareLedger(self.terms, {"pool": pool} | others)

    def components(self) -> list[str]:
        """Who has a policy."""
        return [one["name"].removeprefix("policy:") for one in self.accounts if one["name"].startswith("policy:")]


class Maker:
    """Makes worlds by chance. `crowded`: everybody wants much, and starves soon; `plain`: only the pool has settings."""

    def __init__(self, seed: int, *, groups: bool = True, crowded: bool = False, plain: bool = False) -> None:
        self._random, self._groups, self._crowded, self._plain = Random(seed), groups, crowded, plain

    def world(self) -> World:
        """One of them."""
        random = self._random
        capacity = {"gpu": random.randint(2, 10)}
        if random.random() < 0.4:
            capacity["mem"] = random.randint(2, 8)
        accounts = self._accounts(capacity)
        world = World(self._terms(), capacity, accounts, self._pool_says(), at_once=random.random() < 0.5)
        for component in random.sample(world.components(), random.choice((1, 1, 2))):
            most = random.choice((1, 1, 2, 3))
            world.ops += [self._submit(world, component, most) for _ in range(random.randint(3, 8))]
        world.ops += [self._op(world) for _ in range(random.randint(0, 14))]
        world.ops += [self._submit(world) for _ in range(random.randint(1, 5))]
        if self._crowded:
            for component in world.components():
                most = random.choice((1, 2, 4))
                world.ops += [self._submit(world, component, most) for _ in range(random.randint(1, 4))]
        world.choices = [random.randint(0, 11) for _ in range(12)]
        return world

    def _some(self, chance: float) -> bool:
        return self._random.random() < chance

    def _terms(self) -> PlannerSettings:
        some, random, rich = self._some, self._random, not (self._plain or self._crowded)
        return PlannerSettings(
            discipline="fair_share",
            queueing="strict" if rich and some(0.15) else "best_effort",
            min_runtime_s=random.choice((60, 300)) if rich and some(0.1) else 0,
            max_victims=random.randint(1, 3) if rich and some(0.15) else None,
            max_preemptions_per_minute=random.randint(1, 4) if rich and some(0.1) else None,
            backoff_s=random.choice((0, 5, 5, 90)),
        )

    def _pool_says(self) -> dict[str, str]:
        said = self._says(0.35, "pool")
        if self._crowded:
            said |= {
                "aggressive_starvation": self._random.choice("011"),
                "starvation_timeout_s": self._random.choice(("0", "30")),
            }
            said["fair_share_tolerance"] = self._random.choice(("1", "0.8", "0.9"))
            if self._some(0.4):
                said["preemption_threshold"] = self._random.choice(("0.5", "0.3", "0.8", "1.2"))
        return said

    def _says(self, chance: float, kind: str) -> dict[str, str]:
        """What an account says; `chance` of a setting that is often said."""
        if self._plain and kind != "pool":
            return {}
        said = {name: self._random.choice(values) for name, (part, values) in SETTINGS.items() if self._some(chance * part)}
        if kind == "pool" and "aggressive_starvation" in said:
            said["aggressive_starvation"] = "1"
        return said

    def _accounts(self, capacity: dict[str, int]) -> list[dict[str, Any]]:
        random, made = self._random, list[dict[str, Any]]()
        for name in ("group:g", "group:h")[: random.choice((0, 1, 2, 2)) if self._groups else 0]:
            parent = "group:g" if name == "group:h" and self._some(0.3) else "pool"
            mode = "fifo" if self._some(0.25) else "fair_share"
            made.append(
                {"name": name, "parent": parent, "mode": mode, **self._numbers(capacity), "settings": self._says(0.15, "group")}
            )
        parents = ["pool", *(one["name"] for one in made)]
        for letter in "abcde"[: random.randint(2, 5)]:
            numbers = self._numbers(capacity)
            made.append(
                {
                    "name": f"policy:t/{letter}",
                    "parent": random.choice(parents),
                    **numbers,
                    "settings": self._says(0.12, "policy"),
                }
            )
        _agree(capacity, made)
        return made

    def _numbers(self, capacity: dict[str, int]) -> dict[str, Any]:
        random = self._random
        reserved = {key: random.randint(0, 3) for key in capacity if self._some(0.3)}
        limit = {key: random.randint(1, 6) for key in capacity if self._some(0.15)}
        return {"reserved": reserved, "limit": limit, "weight": random.choice((1, 1, 1, 2, 3))}

    def _submit(self, world: World, component: str = "", most: int = 4) -> Op:
        random = self._random
        amounts = {"gpu": min(most, random.choice((1, 1, 1, 2, 2, 3, 4, 0)))}
        if "mem" in world.capacity and self._some(0.6):
            amounts["mem"] = random.randint(1, 3)
        amounts = {key: units for key, units in amounts.items() if units} or {"gpu": 1}
        asked = ModelRequest(
            component=component or random.choice(world.components()),
            amounts=amounts | {"step_run": 1},
            preemptible=not self._some(0.12),
            preemption_class=random.choice((5, 5, 5, 5, 3, 8, 10 if self._some(0.3) else 5)),
            chain=random.choice("xy") if self._some(0.08) else None,
        )
        return ("submit", asked)

    def _op(self, world: World) -> Op:
        random = self._random
        what = random.choice(OFTEN)
        if what == "submit":
            return self._submit(world)
        if what == "pass":
            return ("pass", random.choice((1, 10, 31, 31, 70, 125, 301)))
        if what == "change":
            return self._change(world) if self._some(0.5) else ("plan",)
        return (what, random.randint(0, 11))

    def _change(self, world: World) -> Op:
        key = self._random.choice(sorted(world.capacity))
        if self._some(0.5):
            return ("resize", key, self._random.randint(2, 10))
        return ("lower", self._random.choice(world.accounts)["name"], key, self._random.randint(0, 4))


def _agree(capacity: dict[str, int], made: list[dict[str, Any]]) -> None:
    """Each parent has what its children reserve, nobody's limit is below that or beyond the pool."""

    def of_children(name: str, key: str) -> int:
        return sum(one["reserved"].get(key, 0) for one in made if one["parent"] == name)

    for one in reversed(made):
        for key in capacity:
            if units := max(one["reserved"].get(key, 0), of_children(one["name"], key)):
                one["reserved"] = {**one["reserved"], key: units}
    for key in capacity:
        capacity[key] = max(capacity[key], of_children("pool", key))
    for one in made:
        limits = {key: max(units, one["reserved"].get(key, 0)) for key, units in one["limit"].items()}
        one["limit"] = {key: min(units, capacity[key]) for key, units in limits.items()}


def act(book: FairShareLedger, op: Op, planned: Any) -> None:
    """Do one thing in a pool; what it acts on is counted modulo what there is."""
    if op[0] == "submit":
        if len(book.allocations) + len(book.waiters) < 18:
            book.submit(op[1])
    elif op[0] == "pass":
        book.now_ms += op[1] * SECOND_MS
    elif op[0] == "resize":
        book.resize(op[1], op[2])
    elif op[0] == "lower":
        book.lower_limit(*op[1:])
    elif op[0] == "plan":
        found = planned(book.snapshot())
        book.publish(found.publication)
        for step in found.steps[:1]:
            if not book.refusal(step):
                book.take(step)
    else:
        of = {
            "cancel": sorted(book.waiters),
            "leave": sorted(one.id for one in book.allocations.values() if one.leaving_for is not None),
        }.get(op[0], sorted(book.allocations))
        if of:
            getattr(book, op[0])(of[op[1] % len(of)])
