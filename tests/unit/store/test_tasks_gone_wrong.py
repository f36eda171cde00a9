"""Tasks with repeated calls, late answers, or lost records."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from app.domain.errors import Conflict, NotFound, StaleFence
from app.domain.specs import RequestSpec
from app.domain.tasks import ReplacedAllocationSpec, TaskSpec
from app.service.audit import Audit
from app.store.audit import AuditStore
from app.store.keys import key
from app.store.scripts import ScriptReply
from tests.support.audit_findings import findings
from tests.support.world import World
from tests.unit.store.test_tasks import CLAIM_S, MESSAGE, START_S, TRIES, Tasks, tasks

__all__ = ["tasks"]


def _repaired(world: World) -> list[str]:
    """Return the kinds of damage that an audit finds and repairs; then let time end the repaired tasks."""
    audit = Audit(world.ledger, AuditStore(world.client, world.clock))
    finding_kinds = [str(each).split()[0].rstrip(":") for each in audit.run(world.workspace, repair=True)]
    world.ledger.clean_up(world.workspace)
    assert findings(world) == []
    return finding_kinds


# ---- twice, because an answer was lost


def test_a_look_that_comes_twice_gives_no_two_tasks_one_request(tasks: Tasks) -> None:
    later = datetime.fromtimestamp(tasks.world.clock.now_ms() / 1000 + 5, UTC)
    for name in ("a", "b", "c"):
        tasks.park(name, not_before=later, resources={"gpu": 1})
    tasks.world.pass_time(5)
    words = {"count": 1, "claim_ms": 30_000, "start_ms": 60_000, "tries": 3, "ids": json.dumps(["one", "two"])}
    for _ in range(3):
        tasks.world.call("take_outbox", **words)
    tasks.send()
    of = [tasks.look(name).request for name in ("a", "b", "c")]
    assert len({each.id for each in of if each}) == 3


def test_a_task_without_a_key_that_is_parked_twice_by_one_call_is_parked_once(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = tasks.store._scripts.call

    def twice(command: str, workspace: str, /, **args: str) -> ScriptReply:
        if command == "park_task":
            call(command, workspace, **args)
        return call(command, workspace, **args)

    monkeypatch.setattr(tasks.store._scripts, "call", twice)
    assert tasks.park_and_start().fence == 1
    again = tasks.park(instead_of=ReplacedAllocationSpec(request=str(getattr(tasks.look().request, "id", "")), fence=1))
    assert (again.status, getattr(again.request, "fence", None)) == ("granted", 2)


def test_a_request_cannot_have_the_key_of_a_task(tasks: Tasks) -> None:
    tasks.park(key="k")
    with pytest.raises(Conflict) as error:
        tasks.world.submit(gpu=1, key="k")
    assert error.value.code == "idempotency_conflict"
    assert tasks.park(key="k").status == "granted", "and the task still has it"


# ---- late


def test_word_of_an_end_that_comes_late_ends_no_other_task_of_that_name(tasks: Tasks) -> None:
    tasks.park(resources={"gpu": 3})
    (late,) = tasks.take()
    tasks.world.pass_time(CLAIM_S)
    assert tasks.send() == [late], "another request was sooner"
    tasks.park(resources={"gpu": 4})
    tasks.store.mark_dispatched(tasks.world.workspace, [late], START_S)
    (verdict,) = tasks.send()
    assert verdict.request != late.request
    assert tasks.list_task_keys() == []


def test_what_begins_before_its_sender_could_say_so_was_sent(tasks: Tasks) -> None:
    tasks.park()
    taken = tasks.take()
    tasks.start(taken[0])
    for _ in range(2):
        tasks.store.mark_dispatched(tasks.world.workspace, taken, START_S)
    assert (tasks.look().sent, tasks.world.ledger.read_counters(tasks.world.workspace)["dispatched"]) == (1, 1)


def test_a_task_given_up_while_it_stays_away_was_cancelled(tasks: Tasks) -> None:
    tasks.park()
    while tasks.look().status != "delayed":
        tasks.send()
        tasks.world.pass_time(START_S)
    tasks.store.cancel_task(tasks.world.workspace, "a")
    assert tasks.store.cancel_task(tasks.world.workspace, "a").status == "ended"
    (verdict,) = tasks.send()
    assert verdict.end is not None
    assert verdict.end.status == "cancelled"
    tasks.world.pass_time(3600)
    assert (tasks.send(), tasks.list_task_keys()) == ([], [])


def test_a_task_that_has_not_begun_has_no_checkpoint(tasks: Tasks) -> None:
    tasks.park(lease_s=5)
    (sent,) = tasks.send()
    allocation = (tasks.world.workspace, str(sent.request), 1)
    with pytest.raises(StaleFence):
        tasks.world.ledger.heartbeat(*allocation)
    with pytest.raises(StaleFence):
        tasks.world.ledger.checkpoint(*allocation, "progress")
    tasks.world.pass_time(6)
    assert tasks.status("a") == ["sent"], "its lease does not run"


# ---- gone


@pytest.mark.parametrize("is_started", [False, True])
def test_what_holds_units_for_a_task_that_is_gone_gives_them_back(tasks: Tasks, is_started: bool) -> None:
    tasks.park(lease_s=None)
    tasks.park("waits")
    (sent,) = tasks.send()
    if is_started:
        tasks.start(sent)
    for name in ("a", "waits"):
        tasks.world.client.delete(key("task", tasks.world.workspace, name))
    assert _repaired(tasks.world) == ["task", "task", "counter"]
    if is_started:
        assert tasks.world.used() == {"gpu": 2}, "the running task goes on"
        tasks.world.release(tasks.world.get(str(sent.request)))
    assert tasks.world.used() == {"gpu": 0}
    tasks.world.pass_time(START_S)
    assert tasks.send() == []
    assert tasks.list_task_keys() == []


def test_what_is_left_of_one_that_is_gone_does_not_end_another_of_its_name(tasks: Tasks) -> None:
    sent = tasks.park_and_start()
    tasks.world.client.delete(key("task", tasks.world.workspace, "a"))
    tasks.park()
    tasks.over(sent)
    assert [each.fence for each in tasks.send()] == [2]
    assert _repaired(tasks.world) == ["counter"], "the bytes of the lost message"


@pytest.mark.parametrize("text", ["1~", "", None])
def test_a_message_that_cannot_be_read_keeps_no_other(tasks: Tasks, text: str | None) -> None:
    for name in ("a", "b"):
        tasks.park(name, resources={"gpu": 1})
    task_key = key("task", tasks.world.workspace, "a")
    tasks.world.client.hdel(task_key, "message") if text is None else tasks.world.client.hset(task_key, "message", text)
    assert {each.task: each.message for each in tasks.take()} == {"a": {}, "b": MESSAGE}


def test_one_that_has_its_request_enters_the_queue_no_second_time(tasks: Tasks) -> None:
    first = tasks.park().request
    tasks.world.client.zadd(key("delayed", tasks.world.workspace), {"a": 1})
    tasks.send()
    assert first
    assert getattr(tasks.look().request, "id", None) == first.id


@pytest.mark.parametrize("when", ["9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59.9999Z", "0001-01-01T00:00:00+12:00"])
def test_a_time_that_no_calendar_has(when: str) -> None:
    ask = {"task": "a", "name": "x", "request": RequestSpec(component="t"), "message": {}, "not_before": when}
    with pytest.raises(ValueError, match="not_before"):
        TaskSpec.model_validate(ask)


def test_nothing_is_told_of_what_is_not_there(tasks: Tasks) -> None:
    for command in (tasks.store.get_task, tasks.store.cancel_task):
        with pytest.raises(NotFound):
            command(tasks.world.workspace, "none")


def test_a_late_word_of_one_that_never_had_a_request_ends_no_new_task_that_has_none_yet(tasks: Tasks) -> None:
    later = datetime.fromtimestamp(tasks.world.clock.now_ms() / 1000 + 90, UTC)
    tasks.park(not_before=later)
    tasks.store.cancel_task(tasks.world.workspace, "a")
    verdicts = tasks.take()
    tasks.store.mark_dispatched(tasks.world.workspace, verdicts, START_S)
    tasks.hear()
    tasks.park(not_before=later)
    tasks.store.mark_dispatched(tasks.world.workspace, verdicts, START_S)
    assert tasks.status("a") == ["delayed"]


# ---- preempted, and granted again


def _granted_again(tasks: Tasks, request: str) -> None:
    """Preempt the allocation without grace, and grant its request again under a new fence."""
    world = tasks.world
    world.update_pool(settings={"grace_s": 0})
    world.policy("high", priority=9)
    waiter = world.submit("high", gpu=2)
    assert world.preempt(waiter, world.get(request)).applied
    world.release(waiter)


def test_a_task_that_had_begun_does_not_expire_in_the_queue(tasks: Tasks) -> None:
    world = tasks.world
    world.update_pool(settings={"grace_s": 0})
    world.policy("high", priority=9)
    sent = tasks.park_and_start(queue_ttl_s=60)
    waiter = world.submit("high", gpu=2)
    assert world.preempt(waiter, world.get(str(sent.request))).applied
    world.pass_time(61)
    assert world.status(world.get(str(sent.request))) == ["queued"]


def test_an_allocation_is_replaced_only_under_its_present_fence(tasks: Tasks) -> None:
    sent = tasks.park_and_start()
    _granted_again(tasks, str(sent.request))
    (again,) = tasks.send()
    assert (again.request, again.fence != sent.fence) == (sent.request, True)
    with pytest.raises(StaleFence):
        tasks.park(instead_of=ReplacedAllocationSpec(request=str(sent.request), fence=sent.fence or 0))
    assert tasks.world.get(str(sent.request)).status == "allocated"


def test_that_a_message_was_sent_counts_only_for_the_fence_it_was_sent_under(tasks: Tasks) -> None:
    tasks.park()
    (first,) = tasks.take()
    _granted_again(tasks, str(first.request))
    tasks.store.mark_dispatched(tasks.world.workspace, [first], START_S)
    (again,) = tasks.take()
    assert (again.task, again.attempts) == ("a", 1)


# ---- brokers that take nothing


def test_a_task_that_no_broker_takes_gives_its_units_back(tasks: Tasks) -> None:
    tasks.park()
    (sent,) = tasks.take()
    place = tasks.world.workspace
    for _ in range(TRIES):
        tasks.store.mark_dispatch_failed(place, [sent], START_S)
        tasks.world.clock.advance(START_S)
        (sent,) = tasks.take()
    tasks.store.mark_dispatch_failed(place, [sent], 1)
    tasks.world.clock.advance(1.001)
    assert tasks.take() == []
    assert tasks.world.get(str(sent.request)).status == "expired"


def test_a_failure_that_is_reported_after_its_claim_delays_nothing(tasks: Tasks) -> None:
    tasks.park()
    (sent,) = tasks.take()
    tasks.world.clock.advance(CLAIM_S + 1)
    tasks.store.mark_dispatch_failed(tasks.world.workspace, [sent], 600)
    assert [dispatch.task for dispatch in tasks.take()] == ["a"]
