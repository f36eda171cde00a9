"""Two trainings take both cards; the other team needs its own; one training leaves for it and comes back.

python demo.py [STEPS]

With few steps a training may end before anybody needs its card, or before it hears of it. Then that is said.
"""

import sys
import time
from collections.abc import Callable

from celery.result import AsyncResult
from tasks import evaluate, train

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 60
BEGUN_S = 60
"""How long it takes at most until a worker has begun both trainings."""
OVER_S = 120 + STEPS
"""How long after that all is over, at most."""


class TooLate(Exception):  # noqa: N818 - names what happened
    """Something that was waited for has not happened."""


def main() -> None:
    """Send three tasks, and say what becomes of them."""
    began_s = time.monotonic()

    def say(text: object) -> None:
        print(f"{time.monotonic() - began_s:5.1f} s  {text}", flush=True)

    trainings = {name: train.delay(name, STEPS) for name in ("first", "second")}
    say("two trainings of vision, which owns one card and borrows the other")
    wait(trainings, lambda task: task.state not in ("PENDING", "PARKED"), BEGUN_S)
    ended = [name for name, task in trainings.items() if task.ready()]
    if ended:
        say(f"{' and '.join(ended)} ended before anybody asked for a card; language sends an evaluation all the same")
    else:
        say("both train; language sends an evaluation, and owns the borrowed card")
    evaluation = evaluate.delay("model")
    say(f"the evaluation is {evaluation.state}")
    for name, task in {"the evaluation": evaluation, **trainings}.items():
        wait({name: task}, AsyncResult.ready, OVER_S)
        say(task.get())
    if not ended and not any("earlier life" in task.get() for task in trainings.values()):
        say("no training had to leave: one ended before it heard that its card was needed")


def wait(tasks: dict[str, AsyncResult], happened: Callable[[AsyncResult], bool], within_s: float) -> None:
    """Returns when it has happened to all of them; TooLate says to which it has not."""
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
