"""Random states of a small workspace with many waiters, reconciled until nothing changes."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

from app.domain.errors import Refusal
from app.domain.explanations import Explanation
from app.domain.models import Request
from app.service.explain import Explainer
from app.service.reconcile import Reconciler
from app.store.queries import QueryStore
from app.store.queue_status import QueueStatusStore
from tests.support.world import World

COMPONENTS = ("t", "t-b", "u", "v")
TENANTS = ("w-1", "w-2")
"""Components that have a policy only where a template makes one."""
SHAPES: tuple[dict[str, int], ...] = ({"gpu": 2}, {"gpu": 1}, {"gpu": 3}, {"gpu": 1, "lic": 1}, {"gpu": 4}, {"lic": 2}, {})


class Scene:
    """A workspace in a random state; the same number gives the same one."""

    def __init__(self, world: World, number: int, *, pools: int = 1) -> None:
        self.world, self.random, self._draw_tenants = world, Random(number), Random(-number)
        self._pools_random = Random(number)  # of its own, so that all else is drawn as before
        self.pools = [f"p{index}" for index in range(self.random.randint(1, pools))]
        self._reconciling = Reconciler(world.plan_store, world.ledger)
        self._queries = QueryStore(world.client)
        for pool in self.pools:
            self._furnish(pool)
        for _ in range(self.random.randint(20, 40)):
            self.step()
        self.settle()

    def settle(self) -> None:
        """Reconcile until nothing is left to decide."""
        for _ in range(100):
            before = self.world.ledger.get_last_event_id(self.world.workspace)
            if (
                not self._reconciling.run(self.world.workspace)
                and self.world.ledger.get_last_event_id(self.world.workspace) == before
            ):
                return
        raise AssertionError("it does not come to rest")

    def queued(self) -> list[Request]:
        """Return the waiters, oldest first."""
        return [request for request in self.requests() if request.status == "queued"]

    def requests(self) -> list[Request]:
        """Return all that were submitted, without their positions in the queue."""
        return self._queries.get_requests(self.world.workspace, [request.id for request in self._submitted])

    def explain(self, request: Request) -> Explanation:
        """Return the explanation of a request."""
        world = self.world
        explaining = Explainer(QueueStatusStore(world.client, world.clock), world.plan_store, world.ledger)
        return explaining.explain(world.workspace, request.id)

    def ask(self) -> tuple[str, dict[str, Any]]:
        """Return a random request: its component and its fields."""
        draw = self.random
        fields: dict[str, Any] = {"resources": draw.choice(SHAPES), "preemption_class": draw.choice((1, 5, 5, 9))}
        fields["preemptible"] = draw.random() < 0.65
        fields["checkpoint"] = draw.choice(("none", "manual", "auto"))
        fields["pools"] = ["p0"] if self._pools_random.random() < 0.15 else None
        fields["walltime_s"] = draw.choice((None, None, 5, 60))
        component = draw.choice(COMPONENTS)
        is_tenant = self._has_template and self._draw_tenants.random() < 0.25
        return self._draw_tenants.choice(TENANTS) if is_tenant else component, fields

    _submitted: list[Request]
    _has_template = False

    def _furnish(self, pool: str) -> None:
        draw, world = self.random, self.world
        self._submitted = []
        discipline = draw.choice(("reserved", "reserved", "classes", "fair_share"))
        settings = {
            "discipline": discipline,
            "order": draw.choice(("share_first", "priority_first")),
            "queueing": draw.choice(("best_effort", "best_effort", "strict")),
            "patience_s": draw.choice((0, 2, 3, None)),
            "grace_s": draw.choice((0, 5)),
            "backoff_s": 0,
            "min_runtime_s": draw.choice((0, 0, 3)),
            "template_idle_s": 3,
        }
        chosen = {name: value for name, value in settings.items() if value is not None}
        world.pool(pool, settings=chosen, gpu=draw.randint(3, 8), lic=3)
        for name in ("g", "h"):
            numbers: dict[str, Any] = {"reserved": {"gpu": draw.choice((0, 0, 1, 2))}}
            numbers["limit"] = draw.choice(({}, {"gpu": 3}, {"gpu": 4}))
            with suppress(Refusal):
                world.group(name, pool, **numbers)
        for component in COMPONENTS:
            if draw.random() < 0.95:
                numbers = {"reserved": {"gpu": draw.choice((0, 1, 2, 3))}}
                numbers["limit"] = draw.choice(({}, {}, {"gpu": 2}, {"gpu": 3}))
                group = draw.choice((None, None, "g", "h"))
                with suppress(Refusal):
                    world.policy(component, pool, priority=draw.randint(1, 4), group=group, **numbers)
        draw = self._draw_tenants
        if draw.random() < 0.5:
            limit = draw.choice(({}, {"gpu": 2}, {"gpu": 3}))
            with suppress(Refusal):
                world.policy("w-*", pool, priority=draw.randint(1, 4), group=draw.choice((None, "g")), limit=limit)
                self._has_template = True

    def step(self) -> None:
        """Do something at random."""
        draw, world = self.random, self.world
        draw_value = draw.random()
        if draw_value < 0.7:
            component, fields = self.ask()
            self._submitted.append(world.submit(component, **fields))
        elif draw_value < 0.8:
            allocations = [request for request in self.requests() if request.status in ("allocated", "preempting")]
            if allocations:
                world.release(draw.choice(allocations))
        elif draw_value < 0.9:
            world.pass_time(draw.choice((1, 4, 30)))
        else:
            self._reconciling.run(world.workspace)
