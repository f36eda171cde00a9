"""kill -9 in the middle of each phase of a task. Afterwards every task has ended once, no task has run twice under a valid
fence, no unit is leaked, and no message or key is left.

The phases are: being parked, parked, granted and not sent, sent and not begun, running, leaving, and ending. In each phase
these processes are killed, because only the killed process knows the state of the task, or because the other processes must
find it out by themselves:

- being parked: the API, with calls under way (the caller cannot know their outcome)
- parked: ledger, API and dispatcher at once (the message is stored nowhere else, and a lost notification must not delay it)
- granted: the ledger, while the broker is away; and the dispatcher, between sending and reporting
- sent: the worker that has fetched the task; the broker with all its messages; the ledger; and no worker begins the task, while
  the dispatcher dies
- running: a child, while no dispatcher runs; the ledger, for longer than a lease; the broker, under a worker with running,
  fetched and queued tasks; and a worker that does not die but is stopped, until its tasks run elsewhere
- leaving: the worker, after its notice; the ledger, before it learns that the work is saved; and the broker, until the
  units belong to another request
- ending: the worker, before and after it has stored the result; and the API, for longer than a lease

A process that a phase does not need (the broker while a task is parked, the dispatcher while it runs) is killed in the phase
that needs it. Every kill waits for a sign that the phase has been reached.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from threading import Thread
from typing import Any

import pytest
from poolkeeper.celery import NotParked
from poolkeeper.errors import Conflict

from tests.live.celery_faults.final_checks import check_all, lost_steps
from tests.live.celery_faults.installation import GPUS, SHARE, SLOTS, START_S, TRIES, Installation
from tests.live.celery_faults.journal import ASKED, BEGIN, END, HOLDS, LEAVES, OUT, STEP, STORED
from tests.live.celery_faults.project import work

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

LEASE_S = 2
LONG_LEASE_S = 6
"""A lease in seconds, much longer than any outage of a killed process. Its holder hears in time of a notice."""
STEPS, PAUSE_S = 10, 0.02
CALLS = 20
"""Calls of one client while the API is killed, one after the other: enough that it is dead long before the last."""
Tasks = dict[str, int]


def send(number: int = 1, team: str = "red", **more: Any) -> Tasks:
    """Send tasks; arguments of `work` that are not given are short ones."""
    how = {name: more.pop(name) for name in ("save_every", "hold", "heeds") if name in more}
    steps, pause_s = more.pop("steps", STEPS), more.pop("pause_s", PAUSE_S)
    chosen: Mapping[str, Any] = {"component": team, "lease_s": LEASE_S, **more}
    return {work.apply_async((team, steps, pause_s), how, **chosen).id: steps for _ in range(number)}


def happened(here: Installation, after: str, event: str, times: int = 1, reason: str = "") -> None:
    """Wait until the event has occurred this often."""

    def has_happened() -> bool:
        entries = [entry for _, entry in here.events(after) if entry["event"] == event and reason in ("", entry["reason"])]
        return len(entries) >= times

    here.until(has_happened, f"{times} × {event}")


@pytest.fixture
def full(here: Installation) -> Iterator[list[str]]:
    """Hold all units until the list is empty; it is emptied at the end of the test."""
    request_ids = []
    for team in ("red", "blue"):
        request = here.client.submit(team, gpu=SHARE, preemptible=False, lease_s=None)
        assert here.client.request(request.id).is_allocated
        request_ids.append(request.id)
    yield request_ids
    free(here, request_ids)


def free(here: Installation, request_ids: list[str]) -> None:
    """Release all held units."""
    while request_ids:
        request = here.client.request(request_ids.pop())
        here.client.release(request.id, request.fence or 0)


# ---- being parked, and parked


def test_being_parked_and_the_api_dies(here: Installation) -> None:
    here.start_worker()
    tasks: Tasks = {}

    def submit() -> None:
        for number in range(CALLS):
            name = f"submitted-{os.getpid()}-{number}"
            while name not in tasks:
                try:
                    tasks.update(send(task_id=name))
                except NotParked:
                    continue  # and try again, though it may have been
                except Conflict:  # it had been
                    tasks[name] = STEPS

    before = here.last_event()
    submits = Thread(target=submit)
    submits.start()
    happened(here, before, "submitted", 5)
    here.restart("api")
    submits.join(60)
    assert len(tasks) == CALLS
    check_all(here, tasks)


def test_parked_and_the_whole_service_dies(here: Installation, full: list[str]) -> None:
    here.start_worker()
    tasks = send(12) | send(12, "blue")
    later = send(4, countdown=1)
    here.kill("api", "dispatcher", "ledger")
    here.start("ledger", "api")
    assert here.server("ledger").zcard(here.ledger_key("waiting")) == len(tasks)
    free(here, full)
    here.start("dispatcher")
    all_ = check_all(here, tasks | later)
    assert len(all_) == len(tasks) + len(later), "each ran once"


# ---- granted and not sent


def test_granted_while_the_broker_is_away_and_the_ledger_dies(here: Installation) -> None:
    failures = here.counted("dispatch_failures")
    here.kill("broker")
    tasks = send(GPUS) | send(GPUS, "blue")
    here.until(lambda: here.counted("dispatch_failures") > failures, "it was tried")
    here.restart("ledger")
    here.until(lambda: here.counted("dispatch_failures") > failures + 1, "it is tried again")
    assert here.server("ledger").zcard(here.ledger_key("outbox")) == GPUS
    here.start("broker")
    here.start_worker()
    all_ = check_all(here, tasks)
    assert len(all_) == len(tasks), "each ran once"


def test_granted_and_the_dispatcher_dies_before_it_has_said_what_it_has_sent(here: Installation) -> None:
    ledger = here.server("ledger")
    allocation = here.client.submit("blue", slot=SLOTS, lease_s=None)
    tasks = send(SLOTS, "blue", resources={"slot": 1})
    with ExitStack() as until_it_is_dead:
        with here.frozen("broker"):
            with here.frozen("dispatcher"):
                here.client.release(allocation.id, here.client.request(allocation.id).fence or 0)
                here.until(lambda: ledger.zcard(here.ledger_key("outbox")) == SLOTS, "all are granted")
            here.until(lambda: here.claimed() == SLOTS, "all are taken to be sent")
            until_it_is_dead.enter_context(here.unwritten())
        here.until(lambda: here.queued() == SLOTS, "all are sent")
        here.kill("dispatcher")
        here.until(lambda: not here.waiter_count(), "nothing that it wanted to say is left of it")
    here.server("broker").ltrim("celery", 0, SLOTS // 2 - 1)  # as if it had died half-way
    assert ledger.zcard(here.ledger_key("outbox")) == SLOTS, "the ledger does not know of any that it was sent"
    here.end_claims()
    here.start("dispatcher")
    here.start_worker()
    all_ = check_all(here, tasks)
    assert len(all_) == SLOTS, "each ran once"


# ---- sent and not begun


def test_sent_and_the_worker_dies_that_has_fetched_and_begun_some(here: Installation) -> None:
    doomed = here.start_worker(slots=2)
    tasks = send(2, hold=3, save_every=2)
    here.written(STEP, *tasks, step=2)
    fetched = send(2)
    here.until(lambda: here.sent(fetched) and not here.queued(), "it has fetched two more")
    doomed.kill()
    here.release_tasks(*tasks)
    here.start_worker()
    all_ = check_all(here, tasks | fetched)
    assert [len([run for run in all_ if run.task == task]) for task in fetched] == [1, 1]
    assert sorted(lost_steps(all_).values()) == [[1], [1]], "the step since the last checkpoint"


def test_sent_and_the_broker_loses_it(here: Installation) -> None:
    tasks = send(GPUS) | send(GPUS, "blue")
    here.until(lambda: here.queued() >= GPUS, "they are sent")
    here.kill("broker")
    here.empty("broker")
    here.start("broker")
    here.start_worker()
    all_ = check_all(here, tasks)
    assert len(all_) == len(tasks), "each ran once"


def test_sent_and_the_ledger_dies(here: Installation) -> None:
    worker = here.start_worker()
    os.killpg(worker.pid, signal.SIGSTOP)
    tasks = send(GPUS)
    here.until(lambda: here.sent(tasks), "they are sent")
    here.restart("ledger")
    assert sorted(here.list_allocations()) == sorted(tasks), "what was granted still is"
    assert not here.journal.read(tasks), "no task has begun"
    os.killpg(worker.pid, signal.SIGCONT)
    all_ = check_all(here, tasks)
    assert len(all_) == len(tasks), "each ran once"


def test_sent_and_not_begun_and_the_dispatcher_dies(here: Installation) -> None:
    before = here.last_event()
    tasks = send(GPUS, redeliveries=0) | send(2, "blue")
    here.until(lambda: all(here.times_sent(task) == 2 for task in here.list_allocations()), "all are sent a second time")
    here.restart("dispatcher")
    happened(here, before, "expired", 1, "not_started")
    here.until(lambda: here.queued() > GPUS * TRIES, "under another fence, too")
    here.start_worker()
    all_ = check_all(here, tasks)
    assert len(all_) == len(tasks), "each ran once, however often it was sent"


# ---- running


def test_running_and_a_child_dies_while_no_dispatcher_runs(here: Installation) -> None:
    here.start_worker()
    before = here.last_event()
    tasks = send(2, steps=12, hold=7, save_every=5)
    doomed, other = here.written(STEP, *tasks, step=6)
    here.kill("dispatcher")
    os.kill(doomed.pid, signal.SIGKILL)
    happened(here, before, "expired", 1, "worker_lost")
    here.start("dispatcher")
    here.written(BEGIN, doomed.task, times=2)
    here.release_tasks(*tasks)
    all_ = check_all(here, tasks)
    assert [run.first_step for run in all_ if run.task == doomed.task] == [0, 5]
    assert [run.first_step for run in all_ if run.task == other.task] == [0]


def test_running_and_the_ledger_is_away_for_longer_than_a_lease(here: Installation) -> None:
    here.start_worker()
    tasks = send(GPUS, steps=50, pause_s=0.1, hold=STORED)
    steps = here.written(STEP, *tasks, step=3)
    here.kill("ledger")
    lapsed = max(line.step for line in steps) + round((LEASE_S + 1) / 0.1)
    here.written(STEP, *tasks, step=lapsed)  # no notice can reach them, so they go on
    here.start("ledger")
    here.release_tasks(*tasks)
    check_all(here, tasks, undead=True)


@pytest.mark.parametrize("insists", [True, False], ids=["celery insists", "celery gives up"])
def test_running_and_the_broker_dies_with_the_results(here: Installation, insists: bool) -> None:
    # `insists`: the app retries if a result cannot be stored; by default Celery does not.
    here.start_worker(slots=2, insists=insists)
    tasks = send(2, hold=END)
    here.written(HOLDS, *tasks)
    further = send(2)
    here.until(lambda: here.sent(further) and not here.queued(), "it has fetched two more")
    further |= send(6)
    here.kill("broker", "results")
    here.release_tasks(*tasks)
    here.written(END, *tasks)
    here.start("broker", "results")
    all_ = check_all(here, tasks | further)
    assert len(all_) == len(tasks | further), "the running tasks went on, and the others ran once"


@pytest.mark.parametrize("hold", [5, END], ids=["in the middle", "at its end"])
def test_running_and_the_worker_stands_still_until_its_task_runs_elsewhere(here: Installation, hold: int | str) -> None:
    # While the other worker is stopped, too, the first has all the time that it needs for a call under its stale fence.
    word, step = (HOLDS, STEPS) if hold == END else (STEP, 4)
    first = here.start_worker(slots=1)
    tasks = send(hold=hold, save_every=2)
    (task,) = tasks
    (before,) = here.written(word, task, step=step)
    os.killpg(first.pid, signal.SIGSTOP)
    second = here.start_worker(slots=1)
    (again,) = here.written(word, task, step=step, times=2)
    assert (again.pid, again.fence) != (before.pid, before.fence)
    os.killpg(second.pid, signal.SIGSTOP)
    here.release_tasks(task)
    os.killpg(first.pid, signal.SIGCONT)
    here.until(lambda: not is_there(before.pid) or here.journal.read([task], END), "it is gone, or at its end")
    os.killpg(second.pid, signal.SIGCONT)
    all_ = check_all(here, tasks, undead=True)
    assert not all_[0].steps(STORED), "what it had no right to do any more came to nothing"


def is_there(pid: int) -> bool:
    """True if the process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# ---- leaving


def asked_to_leave(here: Installation, **more: Any) -> tuple[Tasks, list[str]]:
    """Return tasks of both teams, and those of them that must save their work and leave, and know it; all of them wait."""
    borrowers = send(GPUS, hold=5, checkpoint="manual", heeds=True, **more)
    here.written(STEP, *borrowers, step=4)
    owners = send(SHARE, "blue")
    here.until(lambda: len(here.journal.read(borrowers, ASKED)) == SHARE, "they are asked")
    return borrowers | owners, [line.task for line in here.journal.read(borrowers, ASKED)]


def test_asked_to_leave_and_the_worker_dies(here: Installation) -> None:
    doomed = here.start_worker()
    tasks, _ = asked_to_leave(here, save_every=2)
    doomed.kill()
    here.release_tasks(*tasks)
    here.start_worker()
    all_ = check_all(here, tasks)
    lost = [steps for steps in lost_steps(all_).values() if any(steps)]
    assert all(max(steps) <= 1 for steps in lost), "no more than since the last checkpoint"
    assert not [run for run in all_ if run.steps(OUT)]
    assert len([run for run in all_ if run.steps(LEAVES)]) <= SHARE


def test_asked_to_leave_and_the_ledger_dies(here: Installation) -> None:
    here.start_worker()
    before = here.last_event()
    tasks, leaving = asked_to_leave(here, lease_s=LONG_LEASE_S)
    here.kill("ledger")
    here.release_tasks(*leaving)  # and no other task, or there would be units enough, and they could stay
    here.written(LEAVES, *leaving)
    here.start("ledger")
    happened(here, before, "preempted", SHARE)
    here.release_tasks(*tasks)
    all_ = check_all(here, tasks)
    assert lost_steps(all_) == {task: [0] for task in leaving}, "that its work is saved was told later"


def test_asked_to_leave_and_the_broker_dies(here: Installation) -> None:
    here.start_worker()
    before, failures = here.last_event(), here.counted("dispatch_failures")
    tasks, leaving = asked_to_leave(here, lease_s=LONG_LEASE_S)
    here.kill("broker")
    here.release_tasks(*leaving)
    happened(here, before, "preempted", SHARE)
    here.until(lambda: here.counted("dispatch_failures") > failures, "no task can be sent in their place")
    here.start("broker")
    here.release_tasks(*tasks)
    all_ = check_all(here, tasks)
    assert lost_steps(all_) == {task: [0] for task in leaving}, "and all others ran once"


# ---- ending


def test_ending_and_the_worker_dies_before_and_after_the_result_is_stored(here: Installation) -> None:
    doomed = here.start_worker()
    tasks_without_result, tasks_with_result = send(2, hold=END, save_every=4), send(2, hold=STORED)
    here.written(HOLDS, *tasks_without_result)
    here.written(STORED, *tasks_with_result)
    doomed.kill()
    here.release_tasks(*tasks_without_result, *tasks_with_result)
    here.start_worker()
    all_ = check_all(here, tasks_without_result | tasks_with_result)
    by_task = {task: [run.first_step for run in all_ if run.task == task] for task in tasks_without_result | tasks_with_result}
    assert list(by_task.values()) == [[0, 8], [0, 8], [0], [0]], "a result that is there is not made again"


def test_ending_and_the_api_is_away_for_longer_than_a_lease(here: Installation) -> None:
    here.start_worker()
    before = here.last_event()
    tasks = send(2, hold=STORED)
    here.written(STORED, *tasks)
    here.kill("api")
    here.release_tasks(*tasks)
    happened(here, before, "expired", 2, "lease_lapsed")
    happened(here, before, "allocated", 4)
    here.start("api")
    all_ = check_all(here, tasks)
    assert len(all_) == len(tasks), "a result that is there is not made again"
    assert START_S < LEASE_S
