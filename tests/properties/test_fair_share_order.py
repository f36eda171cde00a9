"""Fair share among many policies: the grants found without a scan of all policies are those found with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

import pytest

from app.domain.models import Request
from app.domain.plan_steps import AccountUpdate, Publication
from app.domain.queue_score import CLASS_COUNT, MAX_AMOUNT, SHARE_UNITS
from tests.support.audit_findings import findings
from tests.support.world import World, full_component

POLICIES = 90
CAPACITY = 200


@dataclass
class Books:
    """The use and the demand of each policy, kept beside the ledger by the written rules."""

    fair: dict[str, int]
    used: dict[str, int]
    waiting: list[tuple[str, int, int, Request]]
    """Policy, units, class, request; in order of submission."""
    spare: int = 0
    """The units that no waiter can use."""

    def ratio(self, component: str) -> int:
        """Return the satisfaction in billionths; a policy below its share with demand counts by its part of the share."""
        part = self.used[component] / CAPACITY * SHARE_UNITS / self.fair[component]
        return min(MAX_AMOUNT, math.floor(part * 1e9))

    def grant(self, free: int) -> list[str]:
        """Return the waiters that get the free units, in order."""
        granted = []
        while fitting := [waiter for waiter in self.waiting if waiter[1] <= free]:
            first = min(
                fitting, key=lambda waiter: (self.ratio(waiter[0]), CLASS_COUNT - waiter[2], self.waiting.index(waiter))
            )
            self.waiting.remove(first)
            self.used[first[0]] += first[1]
            free -= first[1]
            granted.append(first[3].id)
        self.spare = free
        return granted


@pytest.mark.parametrize("alike", [False, True], ids=["shares differ", "shares are alike"])
@pytest.mark.parametrize("seed", range(3))
def test_the_first_of_many_is_the_first(world: World, seed: int, alike: bool) -> None:
    random = Random(seed)
    world.pool(gpu=CAPACITY, settings={"discipline": "fair_share", "patience_s": None})
    names = [f"t{number}" for number in range(POLICIES)]
    for name in ("holder", *names):
        world.policy(name)
    allocations = [world.submit("holder", gpu=size) for size in [1, 2, 3, 5, 9, 20, 60, 100]]
    fair = {name: SHARE_UNITS // (90 if alike else random.randint(40, 200)) for name in names}
    books = Books(fair, dict.fromkeys(names, 0), [])
    for _ in range(260):
        name, units, preemption_class = random.choice(names), random.choice((1, 1, 1, 2, 3, 8)), random.choice((5, 5, 5, 9, 1))
        submitted = world.submit(name, gpu=units, preemption_class=preemption_class)
        books.waiting.append((name, units, preemption_class, submitted))
    snapshot = world.snapshot()
    rows = tuple(
        AccountUpdate(f"policy:{full_component(name)}", (("fair_share:gpu", str(books.fair[name])),), ()) for name in names
    )
    assert world.plan_store.write_fair_shares(world.workspace, snapshot, Publication(rows, is_watched=False)).applied
    assert world.queue()[:10] == [
        item[3].id
        for item in sorted(books.waiting, key=lambda item: (0, CLASS_COUNT - item[2], books.waiting.index(item)))[:10]
    ]
    served = 0
    for item in allocations:
        world.release(item)
        left = books.waiting.copy()
        expected = books.grant(item.resources["gpu"] + books.spare)
        waiting = {request.id for _, _, _, request in left}
        granted = [event.request for event in world.events() if event.event == "allocated" and event.request in waiting]
        assert granted == expected
        served += len(granted)
    assert served > 60
    assert findings(world) == []
