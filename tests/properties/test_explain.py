"""An explanation agrees with the outcome: the change that it names is enough, and a smaller one is not."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from app.domain.errors import Refusal
from app.domain.explanations import WaitReason
from app.domain.models import PoolAccount, Request
from tests.properties import foreseen
from tests.properties.random_workspaces import Scene
from tests.support.servers import Servers
from tests.support.world import World

SCENES, FIRST = int(os.environ.get("SCENES", 130)), 250
"""Random states that are tried, and the number of the first: from there on every verdict comes soon."""


def test_what_would_have_to_happen_is_enough_and_no_less_is(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    # The same states also check the estimates: a blocked request never gets "now". Setting up a state is expensive.
    monkeypatch.setattr("app.planner.estimates.start_times.MAX_DRAWS", 10)  # the earliest is then that of all plays
    counts: Counter[str] = Counter()
    foretold: Counter[str] = Counter()
    for number in range(FIRST, FIRST + SCENES):
        scene = Scene(World(servers.client("embedded")), number)
        foretold += foreseen.count_estimates(scene)
        if waiters := scene.queued():
            counts[Trial(scene, scene.random.choice(waiters))()] += 1
    assert {f"{verdict}: granted" for verdict in WaitReason} <= counts.keys(), counts
    assert {f"{verdict}: told when" for verdict in WaitReason} <= foretold.keys(), foretold
    assert sum(count for outcome, count in counts.items() if outcome.endswith("granted")) > SCENES / 4, counts


class Beside(Exception):  # noqa: N818
    """The limit is as large as the pool, so it is no bound; it becomes one when the pool grows."""


class Trial:
    """A waiter whose explanation is put to the test."""

    def __init__(self, scene: Scene, waiter: Request) -> None:
        self.world, self.waiter, self.requests = scene.world, waiter, scene.requests
        self._explain = scene.explain
        (self.view,) = self._explain(waiter).pools
        self.at = self.view.status
        self.running = self._active()

    def __call__(self) -> str:
        """Return the change that was tried, and its outcome."""
        try:
            return f"{self.at.wait_reason}: {self._tried()}"
        except (Refusal, Beside):
            return "such a change cannot be made"

    def _tried(self) -> str:
        if self.at.wait_reason is WaitReason.WAITING_FOR_VICTIMS:
            for request in self.requests():
                if request.status == "preempting":
                    self.world.release(request, outcome="failed")
            return self._outcome()
        if self.at.strict and self.at.position > 1:
            for ahead in self._ahead():
                self.world.cancel(self.world.get(ahead))
            views = self._explain(self.waiter).pools
            if self.at.wait_reason is WaitReason.BEHIND or not views:
                return self._outcome()
            self.view, self.at = views[0], views[0].status
        return self._freed()

    def _freed(self) -> str:
        short: dict[tuple[str, str, str], int] = {}
        for lack in self.at.shortfalls:
            place = lack.account, lack.key, "reserved" if lack.kind == "fixed" else "limit"
            short[place] = max(short.get(place, 0), lack.missing)
        blocking = self.at.blocking
        assert blocking is not None
        last = blocking.account, blocking.key, "reserved" if blocking.kind == "fixed" else "limit"
        short[last] -= 1
        for (account, key, column), units in short.items():
            self._raise(account, key, column, units)
        if not (self.at.patience_owner and self.waiter.walltime_s):  # a request with a walltime may pass a hold
            assert self._status() == "queued", f"less was enough than {self.at}"
        self._raise(*last, 1)
        return self._outcome()

    def _raise(self, account: str, key: str, column: str, by: int) -> None:
        if not by:
            return
        world, pool = self.world, self.world.ledger.get_pool(self.world.workspace, self.at.pool)
        if account == "pool":
            limits = [account_record.limit.get(key) for account_record in (*pool.policies.values(), *pool.groups.values())]
            if any(limit == pool.capacity[key] for limit in limits):
                raise Beside
            world.update_pool(self.at.pool, None, **{key: pool.capacity[key] + by})
            return
        kind, _, name = account.partition(":")
        numbers: PoolAccount = pool.policies[name] if kind == "policy" else pool.groups[name]
        fields = {"reserved": dict(numbers.reserved), "limit": dict(numbers.limit)}
        fields[column][key] = fields[column].get(key, 0) + by
        if kind == "policy":
            world.policy(name, self.at.pool, priority=pool.policies[name].priority, group=numbers.parent, **fields)
        else:
            world.group(name, self.at.pool, parent=numbers.parent, **fields)

    def _outcome(self) -> str:
        if self._status() == "allocated":
            return "granted"
        assert self._active() - self.running, f"neither it nor another was granted: {self.at}"
        return "another was granted"

    def _ahead(self) -> list[str]:
        ids, _ = self.world.ledger.list_queue(self.world.workspace, self.at.pool)
        return ids[: self.at.position - 1]

    def _status(self) -> str:
        return self.world.get(self.waiter).status

    def _active(self) -> set[str]:
        return {request.id for request in self.requests() if request.status in ("allocated", "preempting")}
