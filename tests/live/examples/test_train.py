"""`examples/train.py` under `poolkeeper run`: it is preempted, saves its work, goes on from there, as the README shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.backends import wait_until
from tests.support.cli_program import Program
from tests.support.cli_runs import ALL, Run, RunLab
from tests.support.paths import ROOT

TRAIN = (sys.executable, str(ROOT / "examples" / "train.py"), "--pause", "0.01", "--print-every", "1")
LAST = r"step \d+: y = 3\.00 x \+ 2\.00"


@pytest.fixture
def lab(poolkeeper: Program, beneath: str, tmp_path: Path) -> RunLab:
    return RunLab(poolkeeper, beneath, tmp_path).create_pool()


def preempted_once(lab: RunLab, run: Run, words: str) -> None:
    """Preempt the run after it has printed the words, and let it return."""
    wait_until(lambda: words in run.out, f"it says {words!r}")
    document = lab.only_request()
    waiter = lab.preempt_request(document["id"], document["fence"])
    lab.wait_for_status(waiter, "allocated")
    lab.release(waiter)


def steps(out: str) -> list[int]:
    """Return the steps that the run has printed."""
    return [int(number) for number in re.findall(r"^step (\d+)", out, re.M)]


def test_it_trains_without_poolkeeper(tmp_path: Path) -> None:
    words = [*TRAIN[:2], "--pause", "0", "--steps", "900", "--print-every", "300"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=30)
    assert steps(done.stdout) == [300, 600, 900]
    assert re.search(LAST, done.stdout)
    assert list(tmp_path.iterdir()) == []


def test_a_training_with_notice_saves_its_work_and_loses_none(lab: RunLab) -> None:
    state = lab.folder / "train.json"
    command = ("--", *TRAIN, "--steps", "300", "--state", str(state))
    with lab.run(*ALL, "--checkpoint", "manual", *command) as run:
        preempted_once(lab, run, "step 20:")
        run.wait_for_end(0, within_s=30)
    (saved,) = map(int, re.findall(r"^saved at step (\d+)$", run.out, re.M))
    assert f"going on from step {saved} of {state}\n" in run.out
    before, after = run.out.split("going on from")
    assert steps(after) == list(range(saved + 1, 301))
    assert steps(before)[:saved] == list(range(1, saved + 1))
    lab.check_invariants()


def test_a_training_without_notice_loses_only_the_work_since_its_checkpoint(lab: RunLab) -> None:
    command = ("--", *TRAIN, "--steps", "300", "--save-every", "40", "--state", str(lab.folder / "train.json"))
    with lab.run(*ALL, *command) as run:
        preempted_once(lab, run, "saved at step 40\n")
        run.wait_for_end(0, within_s=30)
    before, after = run.out.split("going on from step ")
    saved = int(after.split()[0])
    assert saved in range(40, 301, 40)
    assert 0 <= steps(before)[-1] - saved <= 40
    assert steps(after) == list(range(saved + 1, 301))
    lab.check_invariants()
