"""A demonstration: two trainings take both cards; the other team needs its own; one training leaves for it and comes back.

python demo.py [STEPS]

With few steps a training may end before its card is needed, or before its directive arrives. The output then says so.
"""

import sys
import time
from collections.abc import Callable

from celery.result import AsyncResult
from tasks import evaluate, train

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 60
BEGUN_S = 60
"""The most seconds until a worker has started both trainings."""
OVER_S = 120 + STEPS
"""The most seconds until all tasks have ended after that."""


class TooLate(Exception):  # noqa: N818 - names what happened
    """The end of a wait for something that did not happen in time."""


def main() -> None:
    """Send three tasks, and print what they do."""
    began_s = time.monotonic()

    def say(text: object) -> None:
        print(f"{time.monotonic() - began_s:5.1f} s  {text}", flush=True)

    trainings = {name: train.delay(name, STEPS) for name in ("first", "second")}
    say("two trainings of vision, which owns one card and borrows the other")
    wait(trainings, lambda task: task.state not in ("PENDING", "PARKED"), BEGUN_S)
    ended = [name for name, task in trainings.items() if task.ready()]
    if ended:
        say(f"{' and '.join(ended)} ended before their card was needed; language sends an evaluation all the same")
    else:
        say("both train; language sends an evaluation, and owns the borrowed card")
    evaluation = evaluate.delay("model")
    say(f"the evaluation is {evaluation.state}")
    for name, task in {"the evaluation": evaluation, **trainings}.items():
        wait({name: task}, AsyncResult.ready, OVER_S)
        say(task.get())
    if not ended and not any("earlier run" in task.get() for task in trainings.values()):
        say("no training had to leave: one ended before its directive arrived")


def wait(tasks: dict[str, AsyncResult], happened: Callable[[AsyncResult], bool], within_s: float) -> None:
    """Wait until a condition holds for all tasks. Raise TooLate with the names of the others after `within_s`."""
    until = time.monotonic() + within_s
    while late := {name: task.state for name, task in tasks.items() if not happened(task)}:
        if time.monotonic() > until:
            raise TooLate(", ".join(f"{name} is still {state}" for name, state in late.items()))
        time.sleep(0.1)


if __name__ == "__main__":
    try:
        main()
    except TooLate as late:
        sys.exit(f"{late}: is the worker of tasks.py running, and Poolkeeper with brokers.toml?")
