"""Histories drawn by weight, so that the world stays crowded: each a list of steps as data, which any part of can be walked.

A state machine of hypothesis tries everything alike; most of what goes wrong in a queue needs one that is full, a hold, and
the right thing leaving. A history that fails is cut down to the steps it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from tests.properties.machine import (
    BRIEF,
    BUDGETS,
    COMPONENTS,
    GROUPS,
    KEYS,
    NAMED_POOLS,
    POOLS,
    SHAPES,
    TEMPLATES,
    TENANTS,
    Histories,
)

Step = tuple[str, dict[str, Any]]

WEIGHTS = {
    "submit": 10, "submit_batch": 5, "submit_again": 1, "submit_with_key": 1, "release": 16, "cancel": 3, "drop": 2,
    "pass_time": 9, "come_with_a_stale_fence": 1, "beat": 2, "beat_too_late": 1, "poll": 1, "go_on": 3, "finish": 1,
    "change_pool": 2, "set_policy": 3, "set_group": 2, "delete_policy": 1, "delete_group": 1, "delete_pool": 1,
    "create_pool": 1, "configure": 1, "reconcile": 10, "stop": 8, "judge": 4, "end_hold": 1, "depart": 5, "answer": 8,
    "vacate": 6, "compare": 1, "set_template": 2,
}  # fmt: skip

QUARREL = {"release": 0.4, "drop": 0.4, "reconcile": 2, "submit": 2, "pass_time": 0.5}
"""The factors for the frequency of steps where most requests compete for the same units."""

HUNGER = {"stop": 0.2, "pass_time": 2, "set_group": 2, "change_pool": 2}
"""The same, where accounts starve under fair share."""


class Walk:
    """One history while it is drawn. The probabilities of its steps differ between histories."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.weights = {name: weight * self.rng.choice((0.3, 1, 1, 3)) for name, weight in WEIGHTS.items()}
        self.careless = self.rng.choice((0, 0.1, 0.3, 0.6))
        self.quarrel = self.rng.random() < 0.5
        """True if most requests compete for the same units and few end by themselves, so that most units are reclaimed."""
        self.hunger = self.rng.random() < 0.4
        """True if the discipline is mostly fair share, and one component came first."""
        for is_weighted, factors in ((self.quarrel or self.hunger, QUARREL), (self.hunger, HUNGER)):
            for name, factor in factors.items() if is_weighted else ():
                self.weights[name] *= factor

    def steps(self, count: int) -> list[Step]:
        """Return the first step, and this many more."""
        names = self.rng.choices(list(self.weights), list(self.weights.values()), k=count)
        return [("begin", self._begin()), *((name, getattr(self, f"_{name}")()) for name in names)]

    def _some(self) -> int:
        return self.rng.randrange(40)

    def _how(self) -> str:
        return self.rng.choice(("twice", "dying")) if self.rng.random() < self.careless else ""

    def _which(self) -> dict[str, Any]:
        return {"which": self._some(), "how": self._how()}

    _submit_again = _release = _cancel = _drop = _beat = _beat_too_late = _which

    def _begin(self) -> dict[str, Any]:
        rng = self.rng
        pools = [(self._capacity(), self._new_settings()) for _ in range(rng.choice((1, 1, 2, 3)))]
        policies = [(index, self._shares(), self._limits(), rng.randrange(3)) for index in range(rng.randint(3, 8))]
        crowd = self._crowd(8)
        for fields in crowd if self.hunger else ():
            fields.update(component=COMPONENTS[0], preemptible=True, resources=rng.choice(SHAPES[:2]))
        chunk, budget = rng.choice((1, 2, 3, 200, 200)), rng.choice(BUDGETS)
        return {"chunk": chunk, "budget": budget, "pools": pools, "policies": policies, "crowd": crowd}

    # the contents of the workspace

    def _capacity(self) -> dict[str, int]:
        rare = {"lic": 2} if self.quarrel else {"lic": 2, "mcpu": 6, "step_run": 6}
        return {"gpu": self.rng.randint(3, 6), **{key: units for key, units in rare.items() if self.rng.random() < 0.4}}

    def _settings(self) -> dict[str, Any]:
        chosen = {
            "order": self.rng.choice(("share_first", "priority_first")),
            "discipline": self.rng.choice(("reserved", "classes", "fair_share", *["fair_share"] * 6 * self.hunger)),
            "queueing": self.rng.choice(("best_effort", "best_effort", "strict")),
            "patience_s": self.rng.choice((0, 1, 3, 8, None)),
            "grace_s": self.rng.choice((0, 0, 1, 2, 6)),
            "checkpoint_timeout_s": self.rng.choice((1, 2, 5)),
            "max_deferral_s": self.rng.choice((0, 2, 4)),
            "requeue_failed_checkpoint": self.rng.random() < 0.5,
            **self._bounds(),
            **self._patience(),
            "template_max": self.rng.choice((1, 3)),
            "template_idle_s": self.rng.choice((2, 9)),
        }
        return {name: value for name, value in chosen.items() if self.rng.random() < 0.5}

    def _bounds(self) -> dict[str, Any]:
        """Return settings of decisions, most of which forbid preemptions, and so are rare."""
        rng = self.rng
        bounds = {
            "max_victims": rng.choice((None, 1, 2)),
            "max_preemptions_per_minute": rng.choice((None, 2)),
            "backoff_s": rng.choice((0, 3, None)),
            "min_runtime_s": rng.choice((0, 2)),
            "near_completion_s": rng.choice((0, 2, None)),
            "value_per_class": rng.choice((None, 1, 100)),
        }
        return {name: value for name, value in bounds.items() if rng.random() < 0.2}

    def _patience(self) -> dict[str, Any]:
        """Return settings of fair share and of limits, which groups and policies have as well."""
        rng = self.rng
        return {
            "over_limit": rng.choice(("keep", "evict", "evict", None)),
            "over_limit_after_s": rng.choice((0, 1, 4)),
            "fair_share_tolerance": rng.choice((0.5, 0.8, 1.0)),
            "starvation_timeout_s": rng.choice((0, 1, 4)),
            "aggressive_starvation": rng.random() < 0.5,
            "aggressive_starvation_timeout_s": rng.choice((0, 2, 8)),
            "allow_aggressive_preemption": rng.random() < 0.7,
            "aggressive_preemption_threshold": rng.choice((0, 0.2, 0.5)),
            "preemption_threshold": rng.choice((0.5, 1.0, 1.0, 1.5)),
            "non_preemptible_usage_threshold": rng.choice(({}, {}, {"gpu": 1})),
        }

    def _new_settings(self) -> dict[str, Any]:
        return {**BRIEF, **({"discipline": "fair_share"} if self.hunger else {}), **self._settings()}

    def _shares(self) -> dict[str, int]:
        if self.quarrel:
            return self.rng.choice(({}, {"gpu": 1}, {"gpu": 2}, {"gpu": 2}, {"gpu": 3}))
        return self.rng.choice(({}, {"gpu": 1}, {"gpu": 1}, {"gpu": 2}, {"gpu": 1, "step_run": 1}, {"mcpu": 2}))

    def _limits(self) -> dict[str, int]:
        if self.quarrel and self.rng.random() < 0.7:
            return {}
        return self.rng.choice(({}, {}, {}, {"gpu": 4}, {"gpu": 3}, {"gpu": 2}, {"step_run": 3}, {"mcpu": 4}))

    def _numbers(self) -> dict[str, Any]:
        settings = {name: value for name, value in self._patience().items() if self.rng.random() < 0.1}
        return {
            "reserved": self._shares(),
            "limit": self._limits(),
            "weight": self.rng.choice((1, 1, 2, 5)),
            "settings": settings,
        }

    def _parent(self) -> str | None:
        return self.rng.choice((None, *GROUPS))

    def _wild(self) -> bool:
        return self.rng.random() < 0.1

    def _create_pool(self) -> dict[str, Any]:
        name = self.rng.choice(POOLS)
        return {"name": name, "capacity": self._capacity(), "chosen": self._new_settings(), "how": self._how()}

    def _change_pool(self) -> dict[str, Any]:
        keys = self.rng.sample(KEYS, self.rng.randrange(3))
        capacity = {key: self.rng.choice((6, 5, 4, 3, 2, 1, 0)) for key in keys}
        return {"pool": self._some(), "capacity": capacity, "chosen": self._settings(), "how": self._how()}

    def _set_policy(self) -> dict[str, Any]:
        priority, component = self.rng.randrange(3), self.rng.choice(COMPONENTS)
        place = {"pool": self._some(), "group": self._parent(), "wild": self._wild(), "how": self._how()}
        return {"component": component, "fields": self._numbers(), "priority": priority, **place}

    def _set_template(self) -> dict[str, Any]:
        return {**self._set_policy(), "component": self.rng.choice(TEMPLATES)}

    def _set_group(self) -> dict[str, Any]:
        place = {"pool": self._some(), "parent": self._parent(), "wild": self._wild(), "how": self._how()}
        fields = {**self._numbers(), "mode": self.rng.choice(("fair_share", "fair_share", "fifo"))}
        return {"group": self.rng.choice(GROUPS), "fields": fields, **place}

    def _delete_policy(self) -> dict[str, Any]:
        return {"component": self.rng.choice((*COMPONENTS, *TEMPLATES)), "pool": self._some(), "how": self._how()}

    def _delete_group(self) -> dict[str, Any]:
        return {"group": self.rng.choice(GROUPS), "pool": self._some(), "how": self._how()}

    def _delete_pool(self) -> dict[str, Any]:
        return {"pool": self._some(), "how": self._how()}

    def _configure(self) -> dict[str, Any]:
        return {"unmanaged": self.rng.choice(("reject", "allow"))}

    # requests and time

    def _ask(self) -> dict[str, Any]:
        rng = self.rng
        return {
            "component": rng.choice((*COMPONENTS * 4, *TENANTS, "unconnected")),
            "resources": rng.choice(SHAPES[:2] * 2 + SHAPES[2:4] if self.quarrel else (*SHAPES, *SHAPES[:3])),
            "pools": rng.choice(NAMED_POOLS),
            "preemptible": rng.random() < (0.9 if self.quarrel else 0.8),
            "preemption_class": rng.choice((1, 5, 5, 5, 9, 10) if rng.random() < 0.3 else (1, 5, 5, 9)),
            "checkpoint": rng.choice(("none", "none", "manual", "auto")),
            "checkpoint_minutes": rng.choice((None, None, 1, 10)),
            "retries": rng.choice((0, 1, 2, -1, -1)),
            "labels": {"preemption_group": "x"} if rng.random() < 0.1 else {},
            "walltime_s": rng.choice((None, None, 1, 3, 6, 12)),
            "lease_s": rng.choice((None, None, None, 5, 15)),
            "queue_ttl_s": rng.choice((None, None, None, 8, 30)),
        }

    def _crowd(self, count: int) -> list[dict[str, Any]]:
        return [self._ask() for _ in range(count)]

    def _submit(self) -> dict[str, Any]:
        return {"fields": self._ask(), "how": self._how()}

    def _submit_batch(self) -> dict[str, Any]:
        return {"batch_fields": self._crowd(self.rng.randint(2, 6)), "how": self._how()}

    def _submit_with_key(self) -> dict[str, Any]:
        return {"fields": self._ask(), "key": self.rng.choice(("k1", "k2")), "how": self._how()}

    def _come_with_a_stale_fence(self) -> dict[str, Any]:
        return {"which": self._some(), "off": self.rng.choice((-1, 1)), "beat": self.rng.random() < 0.5}

    # decisions, and leaving

    def _reconcile(self) -> dict[str, Any]:
        return {"lives": self.rng.choice((1, 2, 4, 7, 12)) if self.rng.random() < self.careless else None}

    def _stop(self) -> dict[str, Any]:
        rng = self.rng
        return {"pool": self._some(), "waiter": rng.choice((0, 0, 1, self._some())), "first": self._some(),
            "wild": rng.choice((0, 0, 0, 0, 1, 2, 3)), "how": self._how()}  # fmt: skip

    def _judge(self) -> dict[str, Any]:
        return {"which": self._some(), "owner": self.rng.choice((None, 0, 1)), "how": self._how()}

    _end_hold = _vacate = _which

    def _depart(self) -> dict[str, Any]:
        return {"how": self._how()}

    def _answer(self) -> dict[str, Any]:
        rng = self.rng
        state = rng.choice(("started", "progress", "defer", "defer", "completed", "completed", "failed"))
        return {"which": self._some(), "state": state, "seconds": rng.choice((1, 2, 5)),
            "off": rng.choice((0, 0, 0, 0, 1)), "any_status": rng.random() < 0.2, "how": self._how()}  # fmt: skip

    def _poll(self) -> dict[str, Any]:
        return {"which": self._some()}

    def _pass_time(self) -> dict[str, Any]:
        return {"seconds": self.rng.choice((0.5, 1, 1, 2, 4, 9)), "how": self._how()}

    def _go_on(self) -> dict[str, Any]:
        return {}

    _finish = _compare = _go_on


def endless(steps: Sequence[Step]) -> list[Step]:
    """Return the same history with unlimited requeues, and with a wait for its end."""
    return [*((name, _endless(chosen)) for name, chosen in steps), ("rest", {})]


def _endless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: -1 if name == "retries" else _endless(of) for name, of in value.items()}
    return [_endless(of) for of in value] if isinstance(value, list) else value


def go(machine: type[Histories], steps: Sequence[Step]) -> None:
    """Walk a history in an empty world."""
    world = machine()
    for name, chosen in steps:
        getattr(world, name)(**chosen)


def shortest(machine: type[Histories], steps: list[Step], tries: int = 400) -> list[Step]:
    """Return a shorter history that still fails: fewer steps, then fewer requests at once."""
    size = len(steps) // 2
    while size and tries > 0:
        for start in range(1, len(steps), size):  # the first is the beginning
            tries -= 1
            fewer = steps[:start] + steps[start + size :]
            if fails(machine, fewer):
                steps = fewer
                break
        else:
            size //= 2
    for index in range(len(steps)):
        steps = _thinner(machine, steps, index)
    return steps


def _thinner(machine: type[Histories], steps: list[Step], index: int) -> list[Step]:
    name, chosen = steps[index]
    for field, value in chosen.items():
        for place in reversed(range(len(value) if isinstance(value, list) else 0)):
            less = {**steps[index][1], field: [element for i, element in enumerate(steps[index][1][field]) if i != place]}
            fewer = [*steps[:index], (name, less), *steps[index + 1 :]]
            if fails(machine, fewer):
                steps = fewer
    return steps


def fails(machine: type[Histories], steps: Sequence[Step]) -> bool:
    """True if the history breaks a rule."""
    try:
        go(machine, steps)
    except Exception:
        return True
    return False
