"""The picture of the README: `.venv/bin/python -m tests.live.dashboard.readme_picture docs/images/dashboard.png`."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import ViewportSize

from app.bootstrap import make_services
from app.domain.clock import ManualClock
from app.domain.specs import RequestSpec
from app.settings import Settings
from app.store.connection import connect
from tests.live.dashboard.browser import Stage, chromium
from tests.support.gunicorn_service import service

SIZE = ViewportSize(width=1120, height=900)
SCALE = 1.75
RUN_MINUTES = (35, 50, 65, 80, 55, 45, 70, 60, 90, 40)


def main() -> None:
    """Write the picture of a pool in which one team takes its reserved GPUs back."""
    with (
        tempfile.TemporaryDirectory() as folder,
        service(Path(folder), api_processes=1, api_threads=32) as running,
        connect(running.redis.url) as client,
    ):
        stage = Stage(running, client)
        fill(stage)
        photograph(stage, Path(sys.argv[1]))


def fill(stage: Stage) -> None:
    """Fill a pool of 8 GPUs, with past run times, a preemption and a queue."""
    stage.pool("gpus", {"gpu": 8}, description="the shared GPUs")
    stage.policy("gpus", "vision", reserved={"gpu": 4}, priority=10)
    stage.policy("gpus", "research", limit={"gpu": 6})
    stage.policy("gpus", "speech")
    clock = ManualClock(round(time.time() * 1000) - sum(RUN_MINUTES) * 60_000)
    past = make_services(stage.client, Settings(), clock).requests
    for minutes in RUN_MINUTES:
        specs = [RequestSpec(component=name, resources={"gpu": 1}, lease_s=None) for name in ("vision", "research", "speech")]
        runs = [past.submit("default", spec) for spec in specs]
        clock.advance(minutes * 60)
        for run in runs:
            assert run.fence is not None
            past.release("default", run.id, run.fence)
    stage.submit("vision", gpu=2, walltime_s=7200, labels=run_by("mia", "python detect.py"))
    stage.submit("research", gpu=4, checkpoint="manual", labels=run_by("ana", "python pretrain.py"))
    victim = stage.submit("research", gpu=2, checkpoint="manual", labels=run_by("bo", "python ablation.py 1"))
    waiter = stage.submit("vision", gpu=2, labels=run_by("mia", "python segment.py"))
    stage.leave(waiter, victim, "gpus")
    stage.submit("speech", gpu=1, labels=run_by("eva", "python transcribe.py"))
    stage.submit("research", gpu=2, labels=run_by("bo", "python ablation.py 2"))


def run_by(user: str, command: str) -> dict[str, str]:
    """Return the labels that `poolkeeper run` writes."""
    return {"user": user, "host": "gpu-01", "pid": "41237", "command": command}


def photograph(stage: Stage, path: Path) -> None:
    """Save the upper part of the pool's page: policies, queue and running requests."""
    with chromium() as browser:
        context = browser.new_context(viewport=SIZE, device_scale_factor=SCALE, color_scheme="light", reduced_motion="reduce")
        context.add_cookies([{"name": "poolkeeper", "value": stage.secrets["operator"], "url": stage.url, "httpOnly": True}])
        page = context.new_page()
        page.goto(f"{stage.url}/pools/gpus")
        page.wait_for_selector("#stream[data-state=live]")
        running = page.get_by_role("table").nth(2).bounding_box()
        assert running is not None
        height = running["y"] + running["height"] + 16
        page.screenshot(path=str(path), full_page=True, clip={"x": 0, "y": 0, "width": SIZE["width"], "height": height})


if __name__ == "__main__":
    main()
