"""Two trainings take both cards; the other team needs its own; one training leaves for it and comes back.

python demo.py [STEPS]
"""

import sys
import time

from tasks import app, evaluate, train

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 60


def main() -> None:
    """Send three tasks, and say what becomes of them."""
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:5.1f} s  {text}", flush=True)

    trainings = [train.delay(name, STEPS) for name in ("first", "second")]
    say("two trainings of vision, which owns one card and borrows the other")
    while not all(running(one.id) for one in trainings):
        time.sleep(0.1)
    say("both train; language sends an evaluation, and owns the borrowed card")
    evaluation = evaluate.delay("model")
    say(f"the evaluation is {evaluation.state}")
    say(evaluation.get(timeout=120))
    for training in trainings:
        say(training.get(timeout=300))


def running(task_id: str) -> bool:
    """Whether a worker has it in hand."""
    active = app.control.inspect(timeout=1).active() or {}
    return any(one["id"] == task_id for tasks in active.values() for one in tasks)


if __name__ == "__main__":
    main()
