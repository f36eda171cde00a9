"""A small training that can be stopped and resumed: a line through points, by gradient descent.

    poolkeeper run --component research --gpu 6 --checkpoint manual -- python examples/train.py

On SIGUSR1 it saves its state and reports that by a line in the file $POOLKEEPER_CHECKPOINT_FILE (like `poolkeeper checkpoint
done`). Then it works on: if it has to leave, `poolkeeper run` ends it. Without `poolkeeper run` it is an ordinary training.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path

POINTS = [(x / 10, 3 * x / 10 + 2) for x in range(20)]
RATE = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn a line.")
    parser.add_argument("--state", type=Path, default=Path("train.json"), help="file of the saved state")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds of a step")
    parser.add_argument("--print-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--save-every", type=int, metavar="STEPS", help="save also without a signal")
    train(parser.parse_args())


def train(options: argparse.Namespace) -> None:
    """Run all steps, from the saved state of an earlier start of the same work, if there is one."""
    signals: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: signals.append(number))
    step, slope, height = load()
    while step < options.steps:
        step, slope, height = step + 1, *better(slope, height)
        time.sleep(options.pause)
        if step % options.print_every == 0 or step == options.steps:
            print(f"step {step}: y = {slope:.2f} x + {height:.2f}", flush=True)
        if signals or (options.save_every and step % options.save_every == 0):
            signals.clear()
            save(options.state, step, slope, height)


def better(slope: float, height: float) -> tuple[float, float]:
    """Return the line after one step of gradient descent on the mean square of the errors."""
    errors = [(x, slope * x + height - y) for x, y in POINTS]
    down = sum(error * x for x, error in errors) / len(errors)
    return slope - RATE * down, height - RATE * sum(error for _, error in errors) / len(errors)


def load() -> tuple[int, float, float]:
    """Return the saved step and its line, or the beginning."""
    if os.environ.get("POOLKEEPER_RESUME") != "1":
        return 0, 0.0, 0.0
    reference = os.environ["POOLKEEPER_CHECKPOINT_REFERENCE"]
    step, slope, height = json.loads(Path(reference).read_text())
    print(f"going on from step {step} of {reference}", flush=True)
    return step, slope, height


def save(path: Path, step: int, slope: float, height: float) -> None:
    """Save the state atomically, then report it."""
    half = path.with_suffix(".half")
    half.write_text(json.dumps([step, slope, height]))
    half.replace(path)
    print(f"saved at step {step}", flush=True)
    if listens := os.environ.get("POOLKEEPER_CHECKPOINT_FILE"):
        Path(listens).write_text(f"{path.absolute()}\n")


if __name__ == "__main__":
    main()
