"""Sample data for the dashboard: pools in normal use, and the hours before."""

from __future__ import annotations

import time

from app.bootstrap import make_services
from app.domain.clock import ManualClock
from app.domain.specs import RequestSpec
from app.settings import Settings
from tests.live.dashboard.browser import Stage

MINUTES = 180
LASTS = {"vision": 55, "physics": 80, "sweeps": 35}


def fill(stage: Stage) -> None:
    """Create two pools, one with groups and a preemption; queues; and three hours of recorded usage."""
    stage.pool("gpus", {"gpu": 16, "mcpu": 64_000}, description="the shared GPUs")
    stage.group("gpus", "science", reserved={"gpu": 10})
    stage.policy("gpus", "vision", group="science", reserved={"gpu": 6}, priority=20)
    stage.policy("gpus", "physics", group="science", reserved={"gpu": 4}, limit={"gpu": 8}, priority=10)
    stage.policy("gpus", "sweeps", limit={"gpu": 12})
    stage.pool("licences", {"matlab": 4}, description="floating licence seats", settings={"min_runtime_s": 900})
    stage.policy("licences", "classroom", limit={"matlab": 2})
    stage.policy("licences", "design", reserved={"matlab": 2})
    _hours_before(stage)
    _now(stage)


def _hours_before(stage: Stage) -> None:
    clock = ManualClock(round(time.time() * 1000) - MINUTES * 60_000)
    then = make_services(stage.client, Settings(), clock)
    running: list[tuple[int, str, int]] = []
    for minute in range(MINUTES):
        for _, request, fence in [item for item in running if item[0] <= minute]:
            then.requests.release("default", request, fence)
        running = [item for item in running if item[0] > minute]
        for place, (component, lasts) in enumerate(LASTS.items()):
            if minute % (9 + 7 * place) == 0:
                expected = {"component": component, "resources": {"gpu": 1 + (minute // 9 + place) % 3}, "lease_s": None}
                item = then.requests.submit("default", RequestSpec.model_validate(expected))
                if item.fence is None:
                    then.requests.cancel("default", item.id)
                else:
                    running.append((minute + lasts, item.id, item.fence))
        then.usage_history.record("default")
        clock.advance(60)
    for _, request, fence in running:
        then.requests.release("default", request, fence)


def _now(stage: Stage) -> None:
    stage.submit("vision", gpu=3, mcpu=12_000, walltime_s=5400, name="segmentation", labels=_run_by("mia", "python segment.py"))
    stage.submit("physics", gpu=2, mcpu=8_000, walltime_s=7200, labels=_run_by("carl", "torchrun lattice.py --size 512"))
    for number in range(2):
        stage.submit(
            "sweeps", gpu=3, mcpu=6_000, walltime_s=3600, name=f"trial-{number}", labels=_run_by("ana", "python trial.py")
        )
    last = stage.submit(
        "sweeps",
        gpu=4,
        mcpu=6_000,
        checkpoint="auto",
        checkpoint_minutes=5,
        name="bert-large",
        labels=_run_by("ana", "pretrain"),
    )
    stage.submit("classroom", matlab=2)
    stage.submit("classroom", matlab=1)
    stage.submit("design", matlab=1)
    stage.submit("design", matlab=2, walltime_s=1200)
    labels = {"experiment": "resnet-<b>50</b>", **_run_by("mia", "python detect.py")}
    waiter = stage.submit("vision", gpu=3, mcpu=4_000, labels=labels)
    stage.leave(waiter, last, "gpus")
    bo = _run_by("bo", "python ablate.py")
    for number in range(9):
        stage.submit("sweeps", gpu=1 + number % 3, walltime_s=1800, name=f"ablation-{number}", labels=bo)


def _run_by(user: str, command: str) -> dict[str, str]:
    """Return the labels that `poolkeeper run` writes."""
    return {"user": user, "host": "gpu-01", "pid": "41237", "command": command}
