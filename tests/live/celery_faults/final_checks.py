"""Conditions that hold at the end: for the tasks, by their results and journal; for the ledger, by its audit and events."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from app.service.audit import Audit
from app.store.audit import AuditStore
from tests.live.celery_faults import project
from tests.live.celery_faults.installation import WORKSPACE, Installation
from tests.live.celery_faults.journal import BEGIN, END, LEAVES, SAVED, SAVING, STEP, STORED, Run, runs
from tests.live.races.invariants import require_none
from tests.live.races.workspace_state import WorkspaceState

Tasks: TypeAlias = Mapping[str, int]
"""Tasks by their ids, and of how many steps each is."""
ENDED = ("SUCCESS", "FAILURE", "REVOKED")
HELD = ("allocated", "preempting")
ROUNDING_S = 0.01
"""The ledger's times are those of whole milliseconds, and of when its server last looked at the clock."""


@dataclass(frozen=True)
class FencePeriod:
    """For how long a fence was the valid one of a task, by the wall's clock."""

    request: str
    fence: int
    begin: float
    end: float

    def covers(self, wall: float) -> bool:
        """True if the fence was valid at this time."""
        return self.begin - ROUNDING_S <= wall <= self.end + ROUNDING_S


def fence_periods(events: Sequence[tuple[str, Mapping[str, str]]]) -> dict[int, FencePeriod]:
    """Return the period of each fence: from its grant to the event with which its request no longer holds units."""
    periods, since = dict[int, FencePeriod](), dict[str, tuple[int, float]]()
    for _, event in events:
        name, timestamp = event["request"], int(event["at"]) / 1000
        if event["event"] == "allocated":
            since[name] = int(event["fence"]), timestamp
        elif event["from"] in HELD and event["to"] not in HELD:
            fence, begin = since.pop(name)
            periods[fence] = FencePeriod(name, fence, begin, timestamp)
    return periods


def wait_until_finished(here: Installation, tasks: Tasks) -> None:
    """Wait until all tasks have ended, and nothing is stored, held or queued."""
    try:
        here.until(lambda: _all_ended(here, tasks), f"all of {len(tasks)} tasks are over")
    except AssertionError as late:
        raise AssertionError("\n".join([str(late), *_describe_unfinished(here, tasks)])) from None
    here.until(lambda: not here.list_outbox_entries(), "nothing is kept")
    here.until(
        lambda: not any(here.server("ledger").zcard(here.ledger_key(queue)) for queue in ("leases", "waiting")),
        "nothing is held",
    )


def check_all(here: Installation, tasks: Tasks, *, undead: bool = False, unharmed: bool = False) -> list[Run]:
    """Check the end state, and return all runs of the tasks. Only if they may be `undead`, a run goes on without its units.

    If the tasks are `unharmed`, as no process was killed, they also go on from the checkpoint that they saved before they left.
    """
    wait_until_finished(here, tasks)
    results = here.results(tasks)
    assert results == {task: ("SUCCESS", project.total(steps)) for task, steps in tasks.items()}
    check_ledger(here)
    all_ = runs(here.journal.read(tasks))
    wrong = [
        *_repeated_steps(all_, tasks),
        *_steps_outside_fence(here, all_, undead=undead),
        *_lost_progress(all_, tasks, unharmed=unharmed),
    ]
    assert not wrong, "\n".join(wrong)
    return all_


def check_ledger(here: Installation) -> None:
    """Check the ledger by its audit, by the model of its rules, and by all of its events."""
    client, ledger = here.server("ledger"), here.ledger
    here.until(lambda: not ledger.resume_unfinished(WORKSPACE), "nothing is unfinished")
    assert Audit(ledger, AuditStore(client)).run(WORKSPACE) == []
    state = WorkspaceState(client, WORKSPACE, int(time.time() * 1000))
    requests, listed = state.model.requests, state.snapshot.data["requests",]
    assert set(listed) == set(requests)
    listed.update(
        {name: request.number for name, request in requests.items()}
    )  # a successor keeps the number of the one before
    state.stream = [(number, event) for number, event in state.stream if event["event"] != "started"]  # which is no transition
    require_none([*state.faults(), *state.leftovers()])


def _all_ended(here: Installation, tasks: Tasks) -> bool:
    results = here.results(tasks)
    return all(results.get(task, ("", None))[0] in ENDED for task in tasks)


def _describe_unfinished(here: Installation, tasks: Tasks) -> Iterator[str]:
    """Yield the facts about tasks that have not ended."""
    results, stories = here.results(tasks), defaultdict(list)
    for _, event in here.events():
        stories[event["request"]].append(f"{event['event']} {event['fence']} {event['reason']}")
    for task in tasks:
        if results.get(task, ("",))[0] not in ENDED:
            lines = [f"{line.word} {line.fence} {line.step}" for line in here.journal.read([task]) if line.word != STEP]
            requests = [
                name for name in stories if here.server("ledger").hget(here.ledger_key("request", name), "task") == task
            ]
            task_fields = here.server("ledger").hgetall(here.ledger_key("task", task))
            yield f"{task}: {results.get(task)}, wrote {lines}, had {[stories[name] for name in requests]}, {task_fields}"


def _repeated_steps(all_: Sequence[Run], tasks: Tasks) -> Iterator[str]:
    """Yield each fence with two runs, and each task without exactly one result of a complete run."""
    run_counts = Counter((run.task, run.fence) for run in all_ for _ in run.steps(BEGIN))
    yield from (f"{task} ran {times} times under fence {fence}" for (task, fence), times in run_counts.items() if times != 1)
    stored = Counter(run.task for run in all_ for _ in run.steps(STORED))
    yield from (f"{task} has {stored[task]} results" for task in tasks if stored[task] != 1)
    yield from (f"{run} was not begun" for run in all_ if run.lines[0].word != BEGIN)
    yield from (f"{run} has a result without an end" for run in all_ if run.steps(STORED) and not run.steps(END))


def _steps_outside_fence(here: Installation, all_: Sequence[Run], *, undead: bool) -> Iterator[str]:
    """Yield each task with two valid fences at a time, and each step outside of a valid fence."""
    valid = fence_periods(here.events())
    by_task = defaultdict(list)
    for run in all_:
        if run.fence not in valid:
            yield f"{run.task} ran under fence {run.fence}, which was never granted"
            continue
        tenure = valid[run.fence]
        by_task[run.task].append(tenure)
        outside = [line for line in run.lines if not tenure.covers(line.wall)]
        if outside and (not undead or outside[0].word == BEGIN):
            yield f"{outside} outside of {tenure}"
    for task, own in by_task.items():
        own.sort(key=lambda tenure: tenure.begin)
        for before, after in pairwise(own):
            if before.end > after.begin:
                yield f"{task} had {before} and {after}"


def _lost_progress(all_: Sequence[Run], tasks: Tasks, *, unharmed: bool) -> Iterator[str]:
    """Yield each run that does not go on from the last checkpoint, or does not do every step from there."""
    save_words = (SAVED, LEAVES) if unharmed else (SAVED,)  # a task writes down that it leaves before it reports so
    saved: defaultdict[str, set[int]] = defaultdict(lambda: {0})
    certain = Counter[str]()
    for run in all_:
        if run.first_step not in saved[run.task] or run.first_step < certain[run.task]:
            yield f"{run.task} went on from {run.first_step}, it had saved {sorted(saved[run.task])}"
        done = run.steps(STEP)
        if done != list(range(run.first_step, run.first_step + len(done))):
            yield f"{run.task} left out steps: {done} from {run.first_step}"
        if run.steps(END) and run.first_step + len(done) != tasks[run.task]:
            yield f"{run.task} ended at {done[-1:]} of {tasks[run.task]}"
        saved[run.task] |= {*run.steps(SAVING), *run.steps(LEAVES)}
        certain[run.task] = max([certain[run.task], *(step for word in save_words for step in run.steps(word))])


def lost_steps(all_: Sequence[Run]) -> dict[str, list[int]]:
    """Return the number of steps of each run that the next one repeated, by task."""
    by_task = defaultdict(list)
    for run in all_:
        by_task[run.task].append(run)
    return {
        task: [before.first_step + len(before.steps()) - after.first_step for before, after in pairwise(own)]
        for task, own in by_task.items()
        if len(own) > 1
    }
