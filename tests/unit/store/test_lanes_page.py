"""The example of `docs/internals/lanes-and-parking.md`: after each step the lanes are parked as the page shows."""

from __future__ import annotations

import re

from tests.support.paths import ROOT
from tests.support.world import World

PAGE = (ROOT / "docs/internals/lanes-and-parking.md").read_text("utf-8")


def parked_on_page(step: str) -> dict[str, str]:
    """Return the table of the page after a step: lane → slot and need."""
    (table,) = re.findall(rf"^<!-- state: {step} -->\n\n((?:\|.*\n)+)", PAGE, re.M)
    rows = re.findall(r"^\| `(\w+)`, (\d+) \| `(.+)` \| (\d+) \|$", table, re.M)
    return {
        f"orchestrator/{component}|p|gpu={gpu},step_run=1": f"{slot} {need}".replace("\\", "")
        for component, gpu, slot, need in rows
    }


def parked(world: World) -> dict[str, str]:
    """Return the present slot and need of each lane, without the time."""
    rows = world.client.hgetall(f"pk:{{{world.workspace}}}:pool:gpus:parked")
    return {str(lane): str(text).rpartition(" ")[0] for lane, text in rows.items()}


def test_lanes_are_parked_as_the_page_shows(world: World) -> None:
    world.pool("gpus", gpu=8)
    for component in ("research", "batch", "tuning"):
        world.policy(component, pool="gpus")
    world.policy("vision", pool="gpus", limit={"gpu": 4})
    world.submit("research", gpu=2)
    tuning, vision = world.submit("tuning", gpu=3), world.submit("vision", gpu=3)
    waiting_vision = world.submit("vision", gpu=2)
    research = [world.submit("research", gpu=2) for _ in range(5)]
    world.submit("batch", gpu=4)
    waiting_tuning = world.submit("tuning", gpu=1)
    assert parked(world) == parked_on_page("submitted")

    world.release(tuning)
    assert world.status(research[0], research[1], waiting_tuning) == ["allocated", "queued", "allocated"]
    assert parked(world) == parked_on_page("t0 released")

    world.release(vision)
    assert world.status(waiting_vision, research[1]) == ["allocated", "queued"]
    assert parked(world) == parked_on_page("v0 released")
