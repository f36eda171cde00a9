"""Tasks: kept until their request is granted, dispatched through the outbox, started once per fence, parked again when lost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from app.domain.errors import Conflict, NotFound, StaleFence
from app.domain.reasons import ReasonCode
from app.domain.specs import RequestSpec
from app.domain.tasks import OutboxStatus, ReplacedAllocationSpec, Task, TaskDispatch, TaskSpec
from app.store.keys import key
from app.store.task_outbox import TaskStore
from tests.support.world import World

CLAIM_S, START_S, TRIES = 30, 60, 3
MESSAGE = {"id": "a", "body": "W10=", "headers": {"lang": "py", "n": [1, "ü"]}}


class Tasks:
    """A workspace with a pool of two GPUs, and its tasks."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = TaskStore(world.client, world.clock)
        world.pool(gpu=2)
        world.policy(reserved={"gpu": 2})

    def park(self, task: str = "a", key: str | None = None, **fields: Any) -> Task:
        about: dict[str, Any] = {
            name: fields.pop(name) for name in ("name", "not_before", "redeliveries", "instead_of", "message") if name in fields
        }
        request: dict[str, Any] = {"resources": {"gpu": 2}, **fields}
        ask = TaskSpec(
            task=task, request=RequestSpec(component="t", **request), **{"name": "proj.train", "message": MESSAGE} | about
        )
        return self.store.park_task(self.world.workspace, ask, key)

    def look(self, task: str = "a") -> Task:
        return self.store.get_task(self.world.workspace, task)

    def status(self, *tasks: str) -> list[str]:
        return [str(self.look(task).status) for task in tasks]

    def take(self) -> list[TaskDispatch]:
        return [*self.store.take_outbox(self.world.workspace, CLAIM_S, START_S, TRIES).dispatches]

    def send(self) -> list[TaskDispatch]:
        """Dispatch all tasks that are due, and acknowledge those that are over."""
        sent: list[TaskDispatch] = []
        more = True
        while more:
            taken = self.store.take_outbox(self.world.workspace, CLAIM_S, START_S, TRIES)
            self.store.mark_dispatched(self.world.workspace, taken.dispatches, START_S)
            for over in taken.dispatches:
                if over.end:
                    self.hear(over.task, over.request)
            sent, more = [*sent, *taken.dispatches], taken.more
        return sent

    def hear(self, task: str = "a", request: str | None = None) -> None:
        self.store.acknowledge_end(self.world.workspace, task, request)

    def start(self, of: TaskDispatch, runner: str = "w1") -> Any:
        assert of.request is not None
        assert of.fence is not None
        return self.store.start_task(self.world.workspace, of.request, of.fence, runner)

    def park_and_start(self, task: str = "a", **fields: Any) -> TaskDispatch:
        """Park a task, send it and start it."""
        self.park(task, **fields)
        (sent,) = self.send()
        self.start(sent)
        return sent

    def over(self, of: TaskDispatch, outcome: str = "succeeded") -> Any:
        assert of.request is not None
        assert of.fence is not None
        return self.world.ledger.release(self.world.workspace, of.request, of.fence, outcome)

    def list_task_keys(self) -> list[str]:
        """List the keys of all tasks and of their queues."""
        task_keys = self.world.client.keys(key("task", self.world.workspace, "*").replace("{", "?").replace("}", "?"))
        names = [key(name, self.world.workspace) for name in ("outbox", "unstarted", "delayed")]
        return sorted(str(each) for each in task_keys) + [name for name in names if self.world.client.exists(name)]


@pytest.fixture
def tasks(world: World) -> Tasks:
    """Return the tasks of this world."""
    return Tasks(world)


def test_a_task_goes_its_way_and_nothing_is_kept_of_it(tasks: Tasks) -> None:
    parked = tasks.park()
    assert (parked.id, parked.name, parked.status, parked.sent, parked.lost) == ("a", "proj.train", "granted", 0, 0)
    assert parked.request is not None
    assert (parked.request.task, parked.request.queue_ttl_s, parked.request.lease_expires_ms) == ("a", None, None)
    (sent,) = tasks.send()
    assert (sent.task, sent.request, sent.fence, sent.message, sent.attempts) == ("a", parked.request.id, 1, MESSAGE, 1)
    assert (sent.pool, sent.resources, sent.lease_s) == ("p", {"gpu": 2, "step_run": 1}, 60)
    assert (sent.resume, sent.reference, sent.end) == (False, None, None)
    assert tasks.status("a") == ["sent"]
    beat = tasks.start(sent)
    assert (beat.status, beat.lease_expires_ms, beat.directive) == (
        "allocated",
        tasks.world.clock.now_ms() + 60_000,
        "continue",
    )
    assert tasks.status("a") == ["started"]
    assert tasks.over(sent).status == "released"
    assert tasks.list_task_keys() == []
    with pytest.raises(NotFound):
        tasks.look()
    assert [event.event for event in tasks.world.events()] == ["submitted", "allocated", "started", "released"]


def test_what_waits_is_sent_when_it_is_granted_and_not_before(tasks: Tasks) -> None:
    first = tasks.park_and_start("a")
    assert tasks.park("b").status == "parked"
    assert tasks.send() == []
    tasks.over(first)
    assert [each.task for each in tasks.send()] == ["b"]
    assert tasks.send() == []


def test_a_grant_is_sent_by_one_dispatcher_and_again_without_its_report(tasks: Tasks) -> None:
    tasks.park()
    (claimed,) = tasks.take()
    assert tasks.take() == []
    tasks.world.pass_time(CLAIM_S)
    assert tasks.take() == [claimed]
    tasks.store.mark_dispatch_failed(tasks.world.workspace, [claimed], 2)
    assert tasks.take() == []
    tasks.world.pass_time(2)
    assert tasks.send() == [claimed]
    assert tasks.world.ledger.read_counters(tasks.world.workspace)["dispatch_failures"] == 1


def test_one_runner_begins_it_and_twice_is_once(tasks: Tasks) -> None:
    sent = tasks.park_and_start()
    tasks.start(sent, "w1")
    with pytest.raises(Conflict, match="another runner") as second:
        tasks.start(sent, "w2")
    assert second.value.code == "already_started"
    tasks.over(sent)
    with pytest.raises(StaleFence):
        tasks.start(sent, "w1")


def test_a_request_of_no_task_cannot_be_lost(tasks: Tasks) -> None:
    plain = tasks.world.submit(gpu=1)
    with pytest.raises(Conflict) as no:
        tasks.world.release(plain, outcome="lost")
    assert no.value.code == "no_task"


def test_a_request_of_no_task_may_be_begun_too_by_one_runner_a_fence(tasks: Tasks) -> None:
    world = tasks.world
    plain = world.submit(gpu=1, retries=3, lease_s=60)
    world.pass_time(50)
    beat = tasks.store.start_task(world.workspace, plain.id, 1, "w1")
    assert beat == tasks.store.start_task(world.workspace, plain.id, 1, "w1")
    assert beat.lease_expires_ms == world.clock.now_ms() + 60_000
    world.pass_time(1)
    with pytest.raises(Conflict, match="another runner"):
        tasks.store.start_task(world.workspace, plain.id, 1, "w2")
    request = world.get(plain)
    assert request.lease_expires_ms == beat.lease_expires_ms, "a heartbeat of another runner prolongs nothing"
    assert [entry.event for entry in request.timeline].count("started") == 1
    waiter = world.submit(gpu=2, preemption_class=8)
    assert world.preempt(waiter, plain).applied
    world.release(plain, outcome="vacated")
    world.release(waiter)
    again = world.get(plain)
    assert (again.status, again.fence, again.started_ms) == ("allocated", 3, None)
    tasks.store.start_task(world.workspace, plain.id, 3, "w2")


def test_a_task_that_does_not_begin_is_sent_again_and_then_requeued(tasks: Tasks) -> None:
    first = tasks.park().request
    assert first is not None
    for tries in (1, 2, 3):
        assert [(each.attempts, each.fence) for each in tasks.send()] == [(tries, 1)]
        tasks.world.pass_time(START_S)
    (again,) = tasks.send()
    assert (again.attempts, again.fence) == (1, 2)
    assert again.request != first.id
    old = tasks.world.get(first)
    assert (old.status, old.reason and old.reason.code) == ("expired", ReasonCode.NOT_STARTED)
    new = tasks.world.get(str(again.request))
    assert (new.submitted_ms, new.number) == (first.submitted_ms, first.number)
    counts = tasks.world.ledger.read_counters(tasks.world.workspace)
    assert (counts["not_started"], counts["redispatched"]) == (1, 2)


def test_the_second_time_it_is_taken_back_it_stays_away_for_a_while(tasks: Tasks) -> None:
    tasks.park()
    for _ in range(6):
        assert len(tasks.send()) == 1
        tasks.world.pass_time(START_S)
    assert tasks.send() == []
    assert tasks.status("a") == ["delayed"]
    assert tasks.world.used() == {"gpu": 0}
    tasks.world.pass_time(START_S)
    assert [each.fence for each in tasks.send()] == [3]


def test_while_it_has_not_begun_its_lease_does_not_run(tasks: Tasks) -> None:
    tasks.park(lease_s=5)
    tasks.send()
    tasks.world.pass_time(START_S - 1)
    assert tasks.status("a") == ["sent"]


def test_a_lost_task_is_requeued_with_its_age_and_runs_under_a_new_fence(tasks: Tasks) -> None:
    lost = tasks.park_and_start(lease_s=10)
    tasks.park("b")
    tasks.world.pass_time(10)
    (next_one,) = tasks.send()
    assert (next_one.task, next_one.fence) == ("b", 2), "its units went to the next in the queue"
    tasks.park("c")
    assert tasks.status("a", "c") == ["parked", "parked"]
    assert tasks.look("a").lost == 1
    with pytest.raises(StaleFence):
        tasks.over(lost)
    tasks.over(next_one)
    assert [(each.task, each.fence, each.attempts) for each in tasks.send()] == [("a", 3, 1)]


def test_the_run_after_a_lost_one_resumes_from_its_checkpoint(tasks: Tasks) -> None:
    sent = tasks.park_and_start(checkpoint="auto")
    tasks.world.ledger.checkpoint(tasks.world.workspace, str(sent.request), 1, "completed", reference="s3://a b/9")
    tasks.over(sent, "lost")
    (again,) = tasks.send()
    assert (again.resume, again.reference) == (True, "s3://a b/9")
    tasks.start(again)
    instead = ReplacedAllocationSpec(request=str(again.request), fence=again.fence or 0)
    tasks.park(instead_of=instead)
    (third,) = tasks.send()
    assert (third.resume, third.reference, third.fence) == (True, "s3://a b/9", 3)
    tasks.start(third)
    tasks.park(instead_of=ReplacedAllocationSpec(request=str(third.request), fence=3), name="proj.other")
    (other,) = tasks.send()
    assert (other.resume, other.reference, other.fence) == (False, None, 4), "what another saved is not its own"


def test_that_the_worker_is_gone_may_be_said_at_once_and_twice(tasks: Tasks) -> None:
    sent = tasks.park_and_start()
    for _ in range(2):
        request = tasks.over(sent, "lost")
        assert (request.status, request.reason.code) == ("expired", ReasonCode.WORKER_LOST)
    assert [(each.task, each.fence) for each in tasks.send()] == [("a", 2)]


def test_a_task_that_is_lost_too_often_ends(tasks: Tasks) -> None:
    tasks.park(redeliveries=1)
    for fence in (1, 2):
        (sent,) = tasks.send()
        assert sent.fence == fence
        tasks.start(sent)
        tasks.over(sent, "lost")
    assert tasks.status("a") == ["ended"]
    (verdict,) = tasks.send()
    assert verdict.end is not None
    assert (verdict.fence, verdict.end.status, verdict.end.code) == (None, "expired", "worker_lost")
    assert verdict.attempts == 1, "how often the task was sent does not count"
    assert tasks.list_task_keys() == []


def test_a_task_that_had_to_leave_is_sent_again_with_what_it_goes_on_from(tasks: Tasks) -> None:
    tasks.world.policy("high", priority=9)
    sent = tasks.park_and_start(checkpoint="auto", resources={"gpu": 2})
    tasks.world.policy(reserved={})
    waiter = tasks.world.submit("high", gpu=2)
    tasks.world.preempt(waiter, tasks.world.get(str(sent.request)))
    tasks.world.ledger.checkpoint(tasks.world.workspace, str(sent.request), 1, "completed", reference="s3://9")
    assert tasks.status("a") == ["parked"]
    assert tasks.send() == []
    tasks.world.release(tasks.world.get(waiter))
    (again,) = tasks.send()
    assert (again.request, again.fence, again.resume, again.reference) == (sent.request, 3, True, "s3://9")
    assert tasks.status("a") == ["sent"]
    tasks.start(again, "another")


def test_a_task_that_has_not_begun_leaves_at_once(tasks: Tasks) -> None:
    tasks.world.policy("high", priority=9)
    tasks.world.policy(reserved={})
    tasks.park(checkpoint="auto")
    (sent,) = tasks.send()
    waiter = tasks.world.submit("high", gpu=2)
    tasks.world.preempt(waiter, tasks.world.get(str(sent.request)))
    assert tasks.world.status(waiter) == ["allocated"]
    assert tasks.status("a") == ["parked"]
    with pytest.raises(StaleFence):
        tasks.start(sent)
    tasks.world.release(tasks.world.get(waiter))
    assert [each.fence for each in tasks.send()] == [3]


def test_to_leave_before_it_has_begun_uses_up_no_retry(tasks: Tasks) -> None:
    tasks.world.policy("high", priority=9)
    tasks.world.policy(reserved={})
    tasks.park(retries=0)
    for _ in range(2):
        (sent,) = tasks.send()
        waiter = tasks.world.submit("high", gpu=2)
        tasks.world.preempt(waiter, tasks.world.get(str(sent.request)))
        assert tasks.status("a") == ["parked"]
        tasks.world.release(tasks.world.get(waiter))
    (sent,) = tasks.send()
    tasks.start(sent)
    assert tasks.world.get(str(sent.request)).preemptions == 0


def test_a_lost_worker_of_one_that_has_to_leave_has_left(tasks: Tasks) -> None:
    tasks.world.policy("high", priority=9)
    sent = tasks.park_and_start(checkpoint="auto")
    tasks.world.policy(reserved={})
    waiter = tasks.world.submit("high", gpu=2)
    tasks.world.preempt(waiter, tasks.world.get(str(sent.request)))
    for _ in range(2):
        assert tasks.over(sent, "lost").status == "queued"
    assert tasks.world.status(waiter) == ["allocated"]


def test_a_cancelled_task_is_told_to_be_over(tasks: Tasks) -> None:
    tasks.park_and_start("a")
    tasks.park("b")
    for _ in range(2):
        assert tasks.store.cancel_task(tasks.world.workspace, "b").status == "ended"
    (verdict,) = tasks.send()
    assert verdict.end is not None
    assert (verdict.task, verdict.end.status, verdict.fence) == ("b", "cancelled", None)
    with pytest.raises(NotFound):
        tasks.store.cancel_task(tasks.world.workspace, "b")
    with pytest.raises(Conflict) as running:
        tasks.store.cancel_task(tasks.world.workspace, "a")
    assert running.value.code == "not_queued"


@pytest.mark.parametrize(
    ("how", "status", "code"),
    [("rejected", "rejected", "exceeds_capacity"), ("dropped", "released", "dropped"), ("stale", "expired", "not_polled")],
)
def test_however_a_task_ends_its_worker_hears_of_it(tasks: Tasks, how: str, status: str, code: str) -> None:
    if how == "rejected":
        assert tasks.park(resources={"gpu": 3}).status == "ended"
    elif how == "dropped":
        tasks.world.drop(tasks.world.get(str(tasks.park_and_start().request)))
    else:
        tasks.world.submit(gpu=2)
        tasks.park(queue_ttl_s=5)
        tasks.world.pass_time(5)
    (verdict,) = tasks.send()
    assert verdict.end is not None
    assert (verdict.end.status, verdict.end.code) == (status, code)
    assert verdict.end.message
    assert tasks.list_task_keys() == []


def test_a_task_for_later_has_no_request_until_then(tasks: Tasks) -> None:
    due = tasks.world.clock.now_ms() + 90_000
    later = tasks.park(not_before=datetime.fromtimestamp(due / 1000, UTC))
    assert (later.status, later.request, later.not_before_ms) == ("delayed", None, due)
    assert tasks.send() == []
    assert tasks.world.used() == {"gpu": 0}
    tasks.world.pass_time(90)
    (sent,) = tasks.send()
    started = tasks.world.get(str(sent.request))
    assert started.submitted_ms == due
    assert tasks.status("a") == ["sent"]


def test_a_task_for_later_can_be_cancelled(tasks: Tasks) -> None:
    tasks.park(not_before=datetime.fromtimestamp(tasks.world.clock.now_ms() / 1000 + 90, UTC))
    assert tasks.store.cancel_task(tasks.world.workspace, "a").status == "ended"
    (verdict,) = tasks.send()
    assert verdict.end is not None
    assert (verdict.request, verdict.end.status) == (None, "cancelled")
    assert tasks.list_task_keys() == []


def test_parked_twice_with_one_key_is_parked_once(tasks: Tasks) -> None:
    first = tasks.park(key="k")
    assert tasks.park(key="k") == first
    with pytest.raises(Conflict) as other:
        tasks.park(key="k", checkpoint="auto")
    assert other.value.code == "idempotency_conflict"
    with pytest.raises(Conflict) as twice:
        tasks.park(key="other")
    assert twice.value.code == "task_exists"
    (sent,) = tasks.send()
    tasks.start(sent)
    tasks.over(sent)
    assert tasks.park(key="k").status == "ended"
    assert tasks.park(key="new").status == "granted"


def test_a_task_that_tries_again_gives_up_what_it_has_and_is_parked_in_one_step(tasks: Tasks) -> None:
    sent = tasks.park_and_start()
    tasks.world.pass_time(1)
    tasks.park("b")
    instead = ReplacedAllocationSpec(request=str(sent.request), fence=1)
    again = tasks.park(instead_of=instead, key="k", message={"try": 2})
    assert again.status == "granted", "it keeps its place, which is before b's"
    assert again == tasks.park(instead_of=instead, key="k", message={"try": 2})
    old = tasks.world.get(str(sent.request))
    assert (old.status, old.outcome) == ("released", "failed")
    (resent,) = tasks.send()
    assert (resent.message, resent.fence) == ({"try": 2}, 2)
    with pytest.raises(StaleFence):
        tasks.park(instead_of=instead, key="other")
    assert tasks.status("a", "b") == ["sent", "parked"]


def test_a_task_that_tries_again_later_leaves_its_units_to_others(tasks: Tasks) -> None:
    sent = tasks.park_and_start()
    tasks.park("b")
    later = datetime.fromtimestamp(tasks.world.clock.now_ms() / 1000 + 20, UTC)
    assert (
        tasks.park(instead_of=ReplacedAllocationSpec(request=str(sent.request), fence=1), not_before=later).status == "delayed"
    )
    assert [each.task for each in tasks.send()] == ["b"]
    tasks.world.pass_time(20)
    assert tasks.send() == []
    assert tasks.status("a", "b") == ["parked", "sent"]


def test_a_task_of_an_unmanaged_component_needs_no_pool(tasks: Tasks) -> None:
    tasks.world.call("update_workspace", settings='{"unmanaged": "allow"}')
    ask = TaskSpec(task="a", name="x", request=RequestSpec(component="stranger", lease_s=10), message=MESSAGE)
    tasks.store.park_task(tasks.world.workspace, ask)
    (sent,) = tasks.send()
    assert (sent.pool, sent.fence) == (None, 1)
    tasks.start(sent)
    tasks.world.pass_time(10)
    assert [each.fence for each in tasks.send()] == [2]


def test_the_next_look_is_told_when_to_come(tasks: Tasks) -> None:
    taken = tasks.store.take_outbox(tasks.world.workspace, CLAIM_S, START_S, TRIES)
    assert (taken.dispatches, taken.more, taken.next_due_ms) == ((), False, None)
    tasks.park()
    tasks.send()
    now = tasks.world.clock.now_ms()
    taken = tasks.store.take_outbox(tasks.world.workspace, CLAIM_S, START_S, TRIES)
    assert (taken.more, taken.next_due_ms, taken.now_ms) == (False, now + START_S * 1000, now)


def test_how_the_outbox_stands(tasks: Tasks) -> None:
    now_ms = tasks.world.clock.now_ms()
    tasks.park("a", resources={"gpu": 1})
    tasks.send()
    tasks.park("b", resources={"gpu": 1})
    tasks.park("c", not_before=datetime.fromtimestamp(now_ms / 1000 + 20, UTC))
    tasks.take()
    tasks.world.pass_time(3)
    outbox = tasks.store.measure_outbox(tasks.world.workspace)
    assert outbox == OutboxStatus(1, 1, 1, now_ms, now_ms + 3000)
