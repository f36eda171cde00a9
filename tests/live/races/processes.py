"""Real processes for a test: started together, each answers or fails, and none outlives it.

They are forked from a clean process that has the code loaded already, which costs milliseconds and shares nothing: no socket,
no thread and no lock of the test's own process.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterable
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Final

CONTEXT: Final = get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "__main__",
        *(
            f"tests.live.races.{name}"
            for name in ("preloaded_scripts", "random_clients", "competing_clients", "concurrent_reconcilers")
        ),
        *(f"tests.live.faults.{name}" for name in ("change_sequence", "preemption_sequence", "retrying_client")),
        "tests.live.failover.holders",
    ]
)

TIMES: Final = int(os.environ.get("POOLKEEPER_TEST_TIMES", "1"))
"""A factor for the length of races, crashes and loads of tasks: `POOLKEEPER_TEST_TIMES=20 pytest tests/live/races`."""


def _report(pipe: Any, work: Callable[..., object], job: tuple[Any, ...]) -> None:
    try:
        pipe.send((True, work(*job)))
    except BaseException:
        pipe.send((False, traceback.format_exc()))


class ProcessGroup:
    """Processes that do the same work, each with a job (the arguments) of its own; a context, so that none is left behind."""

    def __init__(self, work: Callable[..., Any], jobs: Iterable[tuple[Any, ...]]) -> None:
        self._work, self._jobs = work, list(jobs)
        self._members: list[tuple[connection.Connection, BaseProcess]] = []

    def __enter__(self) -> ProcessGroup:
        for job in self._jobs:
            ours, theirs = CONTEXT.Pipe(duplex=False)
            process = CONTEXT.Process(target=_report, args=(theirs, self._work, job))
            process.start()
            theirs.close()
            self._members.append((ours, process))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for pipe, process in self._members:
            process.kill()
            process.join()
            pipe.close()

    def answers(self, within_s: float = 120) -> list[Any]:
        """Return the result of each process, in the order of the jobs; raise the first failure with its own traceback."""
        answers: dict[int, Any] = {}
        until = time.monotonic() + within_s
        while missing := [pipe for place, (pipe, _) in enumerate(self._members) if place not in answers]:
            ready = connection.wait(missing, until - time.monotonic()) if time.monotonic() < until else []
            if not ready:
                raise AssertionError(f"{len(missing)} of {len(self._members)} processes have not ended within {within_s:g} s")
            for place, (pipe, _) in enumerate(self._members):
                if pipe in ready:
                    answers[place] = _answer(pipe)
        return [answers[place] for place in range(len(self._members))]


def _answer(pipe: connection.Connection) -> Any:
    try:
        done, answer = pipe.recv()
    except EOFError:
        raise AssertionError("a process ended without an answer") from None
    if not done:
        raise AssertionError(f"a process failed:\n{answer}")
    return answer


def run_together(work: Callable[..., Any], jobs: Iterable[tuple[Any, ...]], within_s: float = 120) -> list[Any]:
    """Do all jobs at the same time, each in a process; what each answered."""
    with ProcessGroup(work, jobs) as crew:
        return crew.answers(within_s)
