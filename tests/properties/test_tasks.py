"""Random histories of tasks: whatever is lost, late, doubled, cancelled or taken away, no task is forgotten, none is begun
twice under one fence, the books are right after every step, and in the end each is over exactly once.

Senders die between taking and telling, messages vanish in the broker or come twice, workers die at work, others come with what
was sent long ago, tasks try again, and a team of higher priority takes its own back.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from app.domain.errors import Conflict, NotFound, Refusal, StaleFence
from app.domain.specs import RequestSpec
from app.domain.tasks import ReplacedAllocationSpec, TaskDispatch, TaskSpec
from app.planner.planning_pass import plan_pool
from app.store.task_outbox import TaskStore
from tests.support.audit_findings import findings
from tests.support.world import World

CLAIM_S, START_S, TRIES = 3, 6, 2
WEIGHTS = {
    "park": 9, "send": 12, "send_and_die": 3, "refuse": 2, "begin": 16, "begin_again": 3, "finish": 8, "die": 4, "try_again": 3,
    "silence": 3, "cancel": 2, "drop": 1, "own": 3, "give_back": 3, "reconcile": 8, "pass_time": 6, "resize": 1,
}  # fmt: skip


class History:
    """One history, and the parts of the world outside the ledger: the messages in the broker and the workers at work."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.rng, self.store = world, Random(seed), TaskStore(world.client, world.clock, world.limits)
        world.pool(gpu=4, settings={"grace_s": self.rng.choice((0, 5)), "checkpoint_timeout_s": 5})
        world.policy("team", reserved={"gpu": 1})
        world.policy("owner", priority=5, reserved={"gpu": 3})
        self.broker: list[TaskDispatch] = []
        self.working: dict[tuple[str, int], TaskDispatch] = {}
        self.started_allocations: set[tuple[str, int]] = set()
        self.over: dict[str, list[str]] = {}
        self.owned: list[Any] = []

    # steps

    def park(self) -> None:
        """Park a new task, for now or later."""
        rng, name = self.rng, f"t{len(self.over)}"
        self.over[name] = []
        request: dict[str, Any] = {"resources": {"gpu": rng.randint(1, 2)}, "retries": rng.choice((1, -1))}
        request |= {"lease_s": rng.choice((4, 60))}
        request |= {"checkpoint": rng.choice(("none", "auto")), "queue_ttl_s": rng.choice((None, None, 30))}
        ask = TaskSpec(
            task=name,
            name="x",
            request=RequestSpec.model_validate({"component": "team", **request}),
            message={"n": 1},
            not_before=rng.choice((None, None, self.later())),
            redeliveries=rng.choice((0, 2, -1)),
        )
        first = self.store.park_task(self.world.workspace, ask, name)
        assert self.store.park_task(self.world.workspace, ask, name) == first

    def later(self) -> datetime:
        """Return a time some seconds ahead."""
        return datetime.fromtimestamp(self.world.clock.now_ms() / 1000 + self.rng.randint(1, 20), UTC)

    def taken(self) -> list[TaskDispatch]:
        """Return the tasks that are due to be sent."""
        return [*self.store.take_outbox(self.world.workspace, CLAIM_S, START_S, TRIES, self.rng.choice((1, 2, 50))).dispatches]

    def send(self) -> None:
        """Dispatch the outbox; some messages are lost, some arrive twice."""
        taken = self.taken()
        for dispatch in taken:
            self.broker += [dispatch] * self.rng.choice((0, 1, 1, 1, 2))
        self.store.mark_dispatched(self.world.workspace, taken, START_S)
        for dispatch in taken:
            # the notice of its end is not repeated for ever
            if dispatch.end and dispatch.attempts == TRIES and dispatch not in self.broker:
                self.broker.append(dispatch)

    def send_and_die(self) -> None:
        """Send messages, and die before reporting them."""
        self.broker += [dispatch for dispatch in self.taken() if self.rng.random() < 0.5]

    def refuse(self) -> None:
        """Report that the broker is away."""
        self.store.mark_dispatch_failed(self.world.workspace, self.taken(), 2)

    def begin(self) -> None:
        """Begin the task of a message."""
        if not self.broker:
            return
        got = self.broker.pop(self.rng.randrange(len(self.broker)))
        if got.end:
            if got.end.status not in self.over[got.task]:  # a repeated notice has no further effect
                self.over[got.task].append(got.end.status)
            if self.rng.random() < 0.7:
                with suppress(NotFound):  # another client has released it
                    self.store.acknowledge_end(self.world.workspace, got.task, got.request)
            return
        allocation = (got.request or "", got.fence or 0)
        try:
            self.store.start_task(self.world.workspace, *allocation, f"w{self.rng.random()}")
        except (StaleFence, NotFound):
            return
        except Conflict:
            fresh = False
        else:
            fresh = True
        assert fresh == (allocation not in self.started_allocations)
        if not fresh:
            return
        self.started_allocations.add(allocation)
        self.working[allocation] = got

    def begin_again(self) -> None:
        """Deliver the message of a running task once more."""
        for allocation, of in [*self.working.items()][:1]:
            with pytest.raises(Refusal):
                self.store.start_task(self.world.workspace, *allocation, "another")
            self.broker.append(of)

    def one_at_work(self) -> tuple[tuple[str, int], TaskDispatch] | None:
        """Remove and return a running task, or None."""
        if not self.working:
            return None
        allocation = self.rng.choice([*self.working])
        return allocation, self.working.pop(allocation)

    def finish(self) -> None:
        """End a running task."""
        if work := self.one_at_work():
            self.release(*work, self.rng.choice(("succeeded", "failed")))

    def release(self, allocation: tuple[str, int], of: TaskDispatch, outcome: str) -> None:
        """Release the units that the task may still hold."""
        try:
            released = self.world.ledger.release(self.world.workspace, *allocation, outcome)
        except (StaleFence, NotFound):
            return
        if outcome != "lost" and released.outcome:
            self.over[of.task].append("done")

    def die(self) -> None:
        """Report the death of a process, as its parent does."""
        if work := self.one_at_work():
            self.release(*work, "lost")

    def silence(self) -> None:
        """Lose a running task with its machine, without a report."""
        self.one_at_work()

    def try_again(self) -> None:
        """Retry a failed task, at once or later."""
        if not (work := self.one_at_work()):
            return
        (request, fence), of = work
        ask = TaskSpec(
            task=of.task,
            name="x",
            request=RequestSpec(component="team", resources={"gpu": 1}, lease_s=4),
            message={"n": 2},
            not_before=self.rng.choice((None, self.later())),
            instead_of=ReplacedAllocationSpec(request=request, fence=fence),
        )
        key = f"again-{request}-{fence}"
        try:
            first = self.store.park_task(self.world.workspace, ask, key)
        except (StaleFence, NotFound):
            return
        assert self.store.park_task(self.world.workspace, ask, key) == first

    def cancel(self) -> None:
        """Cancel a task, if it has not begun."""
        if self.over:
            with suppress(Conflict, NotFound):
                self.store.cancel_task(self.world.workspace, self.rng.choice([*self.over]))

    def drop(self) -> None:
        """Drop the request of a running task as an operator."""
        if work := self.one_at_work():
            self.world.ledger.drop(self.world.workspace, work[0][0])

    def own(self) -> None:
        """Submit a request of the owner."""
        self.owned.append(self.world.submit("owner", gpu=self.rng.randint(1, 3)))

    def give_back(self) -> None:
        """Release a request of the owner."""
        if self.owned:
            request = self.owned.pop(self.rng.randrange(len(self.owned)))
            now = self.world.get(request)
            self.world.cancel(now) if now.status == "queued" else self.world.release(now)

    def reconcile(self) -> None:
        """Run one pass, and enforce the deadlines."""
        self.world.enforce_deadlines()
        snapshot = self.world.plan_store.read_snapshot(self.world.workspace, "p")
        if snapshot:
            for step in plan_pool(snapshot).steps[:1]:
                self.world.plan_store.apply_step(self.world.workspace, snapshot, step)

    def pass_time(self) -> None:
        """Let leases lapse, except those of running tasks."""
        for allocation in [*self.working]:
            try:
                self.world.ledger.heartbeat(self.world.workspace, *allocation)
            except (StaleFence, NotFound):
                del self.working[allocation]
        self.world.pass_time(self.rng.choice((0.5, 2, 5)))

    def resize(self) -> None:
        """Resize the pool."""
        self.world.update_pool(gpu=self.rng.randint(4, 6))

    # the end

    def is_over(self) -> bool:
        """True if no data of any task are left."""
        for task in self.over:
            try:
                self.store.get_task(self.world.workspace, task)
            except NotFound:
                continue
            return False
        return True

    def drain(self) -> None:
        """Run all tasks to their end without faults."""
        self.world.update_pool(gpu=5)
        for _ in range(400):
            if self.is_over():
                return
            while self.owned:
                self.give_back()
            self.reconcile()
            taken = self.taken()
            self.store.mark_dispatched(self.world.workspace, taken, START_S)
            self.broker += taken
            while self.broker:
                self.begin()
            for allocation in [*self.working]:
                self.release(allocation, self.working.pop(allocation), "succeeded")
            self.world.pass_time(5)
        raise AssertionError([self.store.get_task(self.world.workspace, task) for task in self.over])


@pytest.mark.parametrize("seed", range(5))
def test_no_task_is_forgotten_and_none_begun_twice(world: World, seed: int) -> None:
    history = History(world, seed)
    for step in history.rng.choices([*WEIGHTS], [*WEIGHTS.values()], k=120):
        getattr(history, step)()
        assert findings(world) == [], step
    history.drain()
    assert findings(world) == []
    assert {task: len(ends) for task, ends in history.over.items()} == dict.fromkeys(history.over, 1)
    assert world.used() == {"gpu": 0}
