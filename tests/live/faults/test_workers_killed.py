"""Workers, beats and Redis are killed at random moments during hundreds of preemptions. All preemptions end, the audit is
clean, and a waiter is granted after the deadlines, plus the delays of a dead worker's lease and of the next tick.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final, TypeVar

import pytest

from app.domain.errors import Refusal, StoreUnavailable
from app.domain.models import Request
from app.store.ledger import Ledger
from app.store.workspaces import WorkspaceRegistry
from tests.live.faults.killed_processes import INTERVAL_S, LEASE_S, WORKSPACE, Kill, KillableService, RandomKiller
from tests.live.races.processes import TIMES
from tests.live.races.workspace_state import check_settled
from tests.support.backends import require
from tests.support.world import World

PREEMPTIONS: Final = int(os.environ.get("POOLKEEPER_TEST_PREEMPTIONS", 200 * TIMES))
"""The least number of preemptions: `POOLKEEPER_TEST_PREEMPTIONS=5000 pytest tests/live/faults/test_workers_killed.py`."""
SIZE, ASKED, GRACE_S, TIMEOUT_S = 30, 3, 1, 1
DEADLINES_S: Final = TIMEOUT_S * 1.5 + GRACE_S
"""Told to save, more time because it is at it, told to end: the longest way."""
STEPS: Final = 3
"""The decision and the two deadlines: each is seen to by a nudge or the next tick."""
BACK_S: Final = 6
"""After Redis was away: until a worker has found it again, and ticks come."""
BUSY_S: Final = 3
"""The delay, in seconds, of a machine that starts several processes at the same time."""
UNDISTURBED_S: Final = DEADLINES_S + STEPS * INTERVAL_S + BUSY_S
EVERYTHING: Final = {"worker", "beat", "redis", "all"}
LONG_S: Final = 60
_Answer = TypeVar("_Answer")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[KillableService]:
    require("redis")
    with ExitStack() as stack:
        yield KillableService(tmp_path, stack)


class TaskLoad:
    """Borrowers hold all there is; wave after wave asks for it, and gives it back."""

    def __init__(self, service: KillableService) -> None:
        self.world = World(service.client, WORKSPACE)
        self.world.ledger = Ledger(service.client)
        self.random = Random(3)
        self.waves: list[list[Request]] = []

    def set_up(self) -> None:
        """Create a pool, and borrowers of all of it; half of them can save their work."""
        WorkspaceRegistry(self.world.client).add(WORKSPACE)
        settings = {"grace_s": GRACE_S, "checkpoint_timeout_s": TIMEOUT_S, "patience_s": None}
        self.world.pool("p", settings, gpu=SIZE)
        self.world.policy("low")
        self.world.policy("high", priority=5)
        for each in range(SIZE):
            self.world.submit("low", own_id=f"low{each}", gpu=1, retries=-1, checkpoint="auto" if each % 2 else "none")

    def retry(self, call: Callable[[], _Answer]) -> _Answer:
        """Repeat the call until Redis answers."""
        until = time.monotonic() + LONG_S
        while True:
            try:
                return call()
            except StoreUnavailable:
                assert time.monotonic() < until, "Redis does not come back"
                time.sleep(0.02)

    def wave(self) -> None:
        """Submit as many requests as fit, and release them when all are granted."""
        number = len(self.waves)
        for each in range(SIZE // ASKED):
            own_id = f"high{number}-{each}"
            self.retry(lambda own_id=own_id: self.world.submit("high", own_id=own_id, gpu=ASKED))  # type: ignore[misc]
        until = time.monotonic() + LONG_S
        requests = self._look(number)
        while waiting := [request.id for request in requests if request.status != "allocated"]:
            assert time.monotonic() < until, f"not granted: {waiting}"
            self._answer_of_a_victim()
            time.sleep(0.02)
            requests = self._look(number)
        self.waves.append(requests)
        for request in requests:
            self.retry(lambda request=request: self.world.release(request, request.fence))  # type: ignore[misc]

    def _look(self, number: int) -> list[Request]:
        names = [f"high{number}-{each}" for each in range(SIZE // ASKED)]
        return [self.retry(lambda name=name: self.world.get(name)) for name in names]  # type: ignore[misc]

    def _answer_of_a_victim(self) -> None:
        """Let a random victim leave, report its progress, or do nothing."""
        name = f"low{self.random.randrange(SIZE)}"
        try:
            request = self.world.get(name)
            if request.directive == "checkpoint":
                self.world.checkpoint(
                    request, self.random.choice(("started", "progress", "completed", "failed")), fence=request.fence
                )
            elif request.directive == "terminate" and self.random.random() < 0.3:
                self.world.release(request, request.fence, "vacated")
        except (Refusal, StoreUnavailable):
            pass


class ExcusedWait:
    """A wait: its whole length, its length since the last kill that affected it, and the bound of each."""

    def __init__(self, request: Request, kills: list[Kill]) -> None:
        self.begun, self.granted = request.submitted_ms / 1000, (request.granted_ms or 0) / 1000
        self.hit = [kill for kill in kills if kill.at_s < self.granted and kill.over + self._back(kill) > self.begun]
        self.whole_s = self.granted - self.begun
        self.rest_s = self.granted - max([self.begun, *(min(kill.over, self.granted) for kill in self.hit)])

    @staticmethod
    def _back(kill: Kill) -> float:
        return BACK_S if kill.kind == "redis" else 0

    @property
    def may_rest_s(self) -> float:
        """Return the bound since the last kill: the deadlines, a tick for each step, one lease of a dead worker and its
        lost tick."""
        return UNDISTURBED_S + (LEASE_S + INTERVAL_S if self.hit else 0) + max([0.0, *map(self._back, self.hit)])

    @property
    def may_last_s(self) -> float:
        """Return the bound of the whole wait: the same, but for each kill, plus the time without any process."""
        return UNDISTURBED_S + sum(kill.over - kill.at_s + LEASE_S + INTERVAL_S + self._back(kill) for kill in self.hit)

    def __str__(self) -> str:
        kinds = ", ".join(kill.kind for kill in self.hit) or "none"
        rest = f"{self.rest_s:.2f} (at most {self.may_rest_s:.2f}) s since the last"
        return f"{self.whole_s:.2f} (at most {self.may_last_s:.2f}) s, hit by {kinds}, {rest}"


@pytest.mark.slow
@pytest.mark.timeout(120 + PREEMPTIONS)
def test_every_preemption_ends_whichever_process_is_killed(service: KillableService) -> None:
    work = TaskLoad(service)
    work.set_up()
    service.begin()
    with RandomKiller(service, 5, (0.7, 2.2)) as killer:
        while len(work.waves) * SIZE < PREEMPTIONS or not {kill.kind for kill in killer.kills} >= EVERYTHING:
            work.wave()
            assert not killer.failed, killer.failed
    kills = killer.kills
    waits = sorted(
        (ExcusedWait(request, kills) for wave in work.waves for request in wave), key=lambda wait: wait.rest_s - wait.may_rest_s
    )
    print(f"{len(kills)} kills; {len(waits)} waits; one of them: {waits[len(waits) // 2]}; nearest to its bound: {waits[-1]}")
    print(f"longest not hit by any: {max((wait.whole_s for wait in waits if not wait.hit), default=0):.2f} s")
    late = [str(wait) for wait in waits if wait.rest_s > wait.may_rest_s or wait.whole_s > wait.may_last_s]
    assert late == [], f"later than may be: {kills}"
    settle(work)


def settle(work: TaskLoad) -> None:
    """Check that no preemption is left, that the audit is clean, and that each victim left once for each notice."""
    world = work.world
    assert not world.get_pool().holds
    last = check_settled(world.client, world.ledger, WORKSPACE, int(time.time() * 1000) + 1000)
    assert last.leftovers() == []
    assert last.of_status("allocated") == sorted(f"low{each}" for each in range(SIZE))
    counts = last.count_events("preempting", "preempted", "forced", "reprieved")
    assert counts["preempting"] == counts["preempted"] + counts["forced"] + counts["reprieved"] >= PREEMPTIONS, counts
    print(counts)
