"""Left-over work is resumed by one process a workspace, which pauses as long as each script took."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from app.domain.errors import StoreUnavailable
from app.domain.models import Request
from app.domain.specs import PolicySpec
from app.store import work_resumer
from app.store.connection import RedisClient
from app.store.ledger import Ledger
from app.store.ledger_calls import WAITING_CALLS
from app.store.lua_linker import LuaCommand
from app.store.scripts import EvalArgs, Scripts
from app.store.work_resumer import HELD_PAUSE_S, MAX_PAUSE_S, BackgroundResumer, WorkResumer
from tests.support.world import World

W = "lab"
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # a thread ends by SystemExit
CALL_S = 0.125


class StubLedger:
    """A ledger with so many calls of work; each call takes CALL_S. Another process may have the lock."""

    def __init__(self, work: int, now: list[float], held: int = 0) -> None:
        self.work, self.now, self.held = work, now, held
        self.lock: str | None = None
        self.calls: list[str] = []
        self.on_release: Callable[[], None] = lambda: None

    def resume_unfinished(self, workspace: str) -> bool:
        self.calls.append("resume" if self.lock is None else "resume locked")
        self.now[0] += CALL_S
        self.work = max(0, self.work - 1)
        return self.work > 0

    def take_job_lock(self, workspace: str, job: str, token: str, ttl_s: int) -> bool:
        self.calls.append("take")
        if self.held:
            self.held -= 1
            return False
        self.lock = token
        return True

    def release_job_lock(self, workspace: str, job: str, token: str) -> None:
        self.calls.append("release")
        assert self.lock == token
        self.lock = None
        self.on_release()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time, moved by hand."""
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return clock


def test_one_call_that_leaves_nothing_takes_no_lock(now: list[float]) -> None:
    ledger = StubLedger(1, now)
    assert WorkResumer(ledger, pause=lambda _: None).finish(W)
    assert ledger.calls == ["resume"]


def test_the_rest_is_resumed_under_the_lock_and_looked_for_once_more(now: list[float]) -> None:
    ledger, pauses = StubLedger(3, now), list[float]()
    assert WorkResumer(ledger, pause=pauses.append).finish(W)
    assert ledger.calls == ["resume", "take", "resume locked", "resume locked", "release", "resume"]
    assert pauses == pytest.approx([CALL_S, CALL_S]), "as long as each call that left work"


def test_work_left_between_the_last_call_and_the_release_is_not_lost(now: list[float]) -> None:
    ledger = StubLedger(2, now)

    def leave_work_once() -> None:
        ledger.on_release = lambda: None
        ledger.work = 2

    ledger.on_release = leave_work_once
    assert WorkResumer(ledger, pause=lambda _: None).finish(W)
    assert ledger.work == 0
    assert ledger.calls.count("release") == 2


def test_the_process_whose_script_left_the_work_pauses_before_it_resumes(now: list[float]) -> None:
    ledger, pauses = StubLedger(2, now), list[float]()
    assert WorkResumer(ledger, pause=pauses.append).finish(W, script_s=0.2)
    assert pauses == [0.2, CALL_S]


def test_a_call_that_waited_for_redis_is_followed_by_a_bounded_pause(now: list[float]) -> None:
    pauses = list[float]()
    assert WorkResumer(StubLedger(2, now), pause=pauses.append).finish(W, script_s=30)
    assert pauses == [MAX_PAUSE_S, CALL_S]


class SlowScripts(Scripts):
    """Scripts of which each takes CALL_S."""

    def __init__(self, client: RedisClient, now: list[float]) -> None:
        super().__init__(client)
        self.now = now

    def _evaluate(self, command: LuaCommand, tail: EvalArgs) -> object:
        self.now[0] += CALL_S
        return super()._evaluate(command, tail)


def hold_one_and_queue(world: World) -> Request:
    """Hold the units for which four requests wait."""
    world.pool(unit=4)
    world.policy()
    holder = world.submit(unit=4)
    world.submit_all([world.request_spec(unit=1)] * 4)
    return holder


def test_a_release_that_continues_its_own_work_pauses_after_each_script(client: RedisClient, now: list[float]) -> None:
    world, pauses = World(client, chunk=1), list[float]()
    holder = hold_one_and_queue(world)
    ledger = Ledger(client, world.clock, world.limits, pause=pauses.append)
    ledger._scripts = scripts = SlowScripts(client, now)
    began = now[0]
    ledger.release(world.workspace, holder.id, holder.fence or 0)
    assert scripts.now[0] - began > 4 * CALL_S, "the work needs some scripts"
    assert pauses[:3] == pytest.approx([CALL_S] * 3)


def test_a_release_hands_its_work_to_the_background_with_the_time_of_its_script(client: RedisClient, now: list[float]) -> None:
    world, later = World(client, chunk=1), list[tuple[str, float]]()
    holder = hold_one_and_queue(world)
    ledger = Ledger(client, world.clock, world.limits, resume_later=lambda *work: later.append(work))
    ledger._scripts = SlowScripts(client, now)
    ledger.release(world.workspace, holder.id, holder.fence or 0)
    assert [workspace for workspace, _ in later] == [world.workspace]
    assert later[0][1] == pytest.approx(CALL_S)


def test_while_another_process_resumes_this_one_waits(now: list[float]) -> None:
    ledger, pauses = StubLedger(9, now, held=2), list[float]()
    assert WorkResumer(ledger, pause=pauses.append).finish(W)
    assert pauses.count(HELD_PAUSE_S) == 2
    assert ledger.calls[:4] == ["resume", "take", "take", "take"]


def test_the_background_leaves_the_work_to_the_process_that_has_the_lock(now: list[float]) -> None:
    ledger = StubLedger(9, now, held=1)
    assert WorkResumer(ledger, pause=lambda _: None).finish(W, waits=False)
    assert ledger.calls == ["resume", "take"]


def test_it_gives_up_after_so_many_calls(now: list[float]) -> None:
    ledger = StubLedger(1000, now)
    assert not WorkResumer(ledger, pause=lambda _: None).finish(W, 10)
    assert len([call for call in ledger.calls if call.startswith("resume")]) <= 11
    assert ledger.lock is None


def test_the_lock_is_prolonged_while_work_goes_on(now: list[float]) -> None:
    ledger = StubLedger(10, now)
    WorkResumer(ledger, pause=lambda _: None).finish(W)
    assert ledger.calls.count("take") > 2, "ten calls take longer than the lock lasts"


class Recorder(WorkResumer):
    """Records what is finished, and waits for a sign before it ends."""

    def __init__(self, fail: Exception | None = None) -> None:
        self.finished: list[str] = []
        self.script_times: list[float] = []
        self.go, self.began, self.fail = threading.Event(), threading.Semaphore(0), fail

    def finish(self, workspace: str, max_calls: int = 0, *, waits: bool = True, script_s: float = 0) -> bool:
        if workspace == "end":
            raise SystemExit
        self.finished.append(workspace)
        self.script_times.append(script_s)
        self.began.release()
        self.go.wait(10)
        if self.fail:
            raise self.fail
        return True

    def end(self, *queues: SimpleQueue[str]) -> None:
        """End the threads that read these queues."""
        for queue in queues:
            queue.put("end")


def test_the_background_takes_each_workspace_that_waits_once() -> None:
    recorder = Recorder()
    background = BackgroundResumer(recorder)
    background.add("first")
    assert recorder.began.acquire(timeout=10)
    for _ in range(3):
        background.add("second")
    recorder.go.set()
    assert recorder.began.acquire(timeout=10)
    background.add("last")
    assert recorder.began.acquire(timeout=10)
    assert recorder.finished == ["first", "second", "last"]
    recorder.end(background._queue)


class EndlessLedger(StubLedger):
    """A ledger where the work of one workspace has no end before that of another is resumed."""

    def __init__(self) -> None:
        super().__init__(0, [0.0])
        self.other_resumed = threading.Event()
        self.calls_before = 0

    def resume_unfinished(self, workspace: str) -> bool:
        if workspace == "end":
            raise SystemExit
        if workspace == "other":
            self.other_resumed.set()
        self.calls_before += not self.other_resumed.is_set()
        return not self.other_resumed.is_set()


def test_the_background_pauses_as_long_as_the_longest_script_that_left_work() -> None:
    recorder = Recorder()
    background = BackgroundResumer(recorder)
    background.add("first")
    assert recorder.began.acquire(timeout=10)
    for script_s in (0.1, 0.3, 0.2):
        background.add("second", script_s)
    recorder.go.set()
    assert recorder.began.acquire(timeout=10)
    assert recorder.script_times == [0, 0.3]
    background.add("end")


def test_work_without_an_end_does_not_keep_the_background_from_other_workspaces() -> None:
    ledger = EndlessLedger()
    background = BackgroundResumer(WorkResumer(ledger, pause=lambda _: None))
    background.add("endless")
    background.add("other")
    assert ledger.other_resumed.wait(10)
    assert ledger.calls_before < 1000
    background.add("end")


@pytest.mark.parametrize("error", [StoreUnavailable("timeout", "Redis is away"), ValueError("a bug")])
def test_the_background_survives_a_failure(error: Exception) -> None:
    recorder = Recorder(error)
    recorder.go.set()
    background = BackgroundResumer(recorder)
    for name in ("first", "second"):
        background.add(name)
        assert recorder.began.acquire(timeout=10)
    assert recorder.finished == ["first", "second"]
    recorder.end(background._queue)


def test_a_fork_starts_a_thread_of_its_own() -> None:
    recorder = Recorder()
    recorder.go.set()
    background = BackgroundResumer(recorder)
    background.add("parent")
    assert recorder.began.acquire(timeout=10)
    before, queue_before = background._thread, background._queue
    work_resumer._forget_all_after_fork()
    background.add("child")
    assert recorder.began.acquire(timeout=10)
    assert background._thread is not before
    recorder.end(queue_before, background._queue)


def test_few_rule_changes_wait_for_the_work_of_a_workspace(client: RedisClient) -> None:
    world, later = World(client, chunk=1), list[str]()
    world.pool(unit=1)
    world.policy()
    for unit in (1, 1, 1):
        world.submit(unit=unit)
        world.submit(unit=unit, preemptible=False)
    ledger = Ledger(client, world.clock, world.limits, resume_later=lambda workspace, _: later.append(workspace))
    ledger._resumer = recorder = Recorder()

    def change() -> None:
        ledger.set_policy(world.workspace, "p", "orchestrator/t", PolicySpec(priority=5))

    threads = [threading.Thread(target=change) for _ in range(WAITING_CALLS)]
    for thread in threads:
        thread.start()
        assert recorder.began.acquire(timeout=10)
    change()
    assert later == [world.workspace]
    with pytest.raises(StoreUnavailable, match="busy"):
        ledger.delete_policy(world.workspace, "p", "orchestrator/t")
    recorder.go.set()
    for thread in threads:
        thread.join(10)
    change()
    assert len(recorder.finished) == WAITING_CALLS + 1
