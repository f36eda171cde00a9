"""Random pools in a ledger, reconciled until nothing changes, and the snapshot that the planner reads of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Any

from app.domain.errors import Refusal
from app.domain.models import Request
from app.service.reconcile import Reconciler
from app.store.queries import QueryStore
from tests.support.world import World

COMPONENTS = ("a", "b", "c", "d")
MOST_ROUNDS = 100


class RandomPool:
    """One pool in a random state; equal seeds give equal states.

    `distinct_ranks`: no two requests of a policy have one class, and no two policies one priority. With `order: priority_first`
    the order of the queue then does not change with what is granted.
    """

    def __init__(self, world: World, seed: int, *, distinct_ranks: bool = False, **settings: Any) -> None:
        self.world, self.random = world, Random(seed)
        self._distinct_ranks = distinct_ranks
        self._reconciler = Reconciler(world.plan_store, world.ledger)
        self._queries = QueryStore(world.client)
        self._submitted: list[Request] = []
        self._classes = {component: self.random.sample(range(11), 11) for component in COMPONENTS}
        world.pool(gpu=self.random.randint(4, 9), lic=self.random.randint(2, 4), settings=self._settings(settings))
        self._create_accounts()
        for _ in range(self.random.randint(20, 35)):
            self._act()
        self.settle()

    def settle(self) -> None:
        """Reconcile until nothing moves."""
        for _ in range(MOST_ROUNDS):
            last_event = self.world.ledger.get_last_event_id(self.world.workspace)
            moved = self._reconciler.run(self.world.workspace)
            if not moved and self.world.ledger.get_last_event_id(self.world.workspace) == last_event:
                return
        raise AssertionError("the pool does not come to rest")

    def requests(self, *statuses: str) -> list[Request]:
        """Return the requests with one of these statuses."""
        ids = [request.id for request in self._submitted]
        current = self._queries.get_requests(self.world.workspace, ids)
        return [request for request in current if request.status in statuses]

    def _settings(self, settings: dict[str, Any]) -> dict[str, Any]:
        chosen = {
            "queueing": self.random.choice(("best_effort", "best_effort", "strict")),
            "patience_s": self.random.choice((2, 3, None)),
            "grace_s": 600,
            "backoff_s": 0,
        }
        return chosen | settings

    def _create_accounts(self) -> None:
        random, capacity = self.random, self.world.get_pool().capacity
        for name in ("g", "h"):
            limit = random.choice(({}, {}, {"gpu": 4}, {"gpu": 99}))
            self.world.group(name, reserved={"gpu": random.choice((0, 0, 2))}, limit=_at_most(limit, capacity))
        priorities = random.sample(range(1, 9), len(COMPONENTS)) if self._distinct_ranks else random.choices(range(1, 4), k=4)
        for component, priority in zip(COMPONENTS, priorities, strict=True):
            fields: dict[str, Any] = {"priority": priority, "weight": random.choice((1, 1, 2, 3))}
            fields["reserved"] = random.choice(({}, {"gpu": 1}, {"gpu": 2}, {"gpu": 2, "lic": 1}))
            fields["limit"] = _at_most(random.choice(({}, {}, {"gpu": 3}, {"gpu": 99}, {"lic": 99})), capacity)
            for group in (random.choice((None, None, "g", "h")), None):
                with suppress(Refusal):
                    self.world.policy(component, group=group, **fields)
                    break
            else:
                self.world.policy(component, priority=priority)

    def _act(self) -> None:
        number = self.random.random()
        if number < 0.75:
            self._submit()
        elif number < 0.85:
            running = self.requests("allocated", "preempting")
            if running:
                self.world.release(self.random.choice(running))
        elif number < 0.95:
            self.world.pass_time(self.random.choice((1, 2, 4)))
        else:
            self._reconciler.run(self.world.workspace)

    def _submit(self) -> None:
        component = self.random.choice(COMPONENTS)
        if self._distinct_ranks and not self._classes[component]:
            return
        preemption_class = self._classes[component].pop() if self._distinct_ranks else self.random.choice((1, 5, 5, 9))
        amounts: dict[str, Any] = self.random.choice(({"gpu": 1}, {"gpu": 2}, {"gpu": 3}, {"gpu": 1, "lic": 1}, {"lic": 2}))
        preemptible = self.random.random() < 0.75
        self._submitted.append(
            self.world.submit(component, preemption_class=preemption_class, preemptible=preemptible, **amounts)
        )


def _at_most(limit: Mapping[str, int], capacity: Mapping[str, int]) -> dict[str, int]:
    """Return the limit, where 99 stands for the capacity of the pool."""
    return {key: min(units, capacity[key]) for key, units in limit.items()}
