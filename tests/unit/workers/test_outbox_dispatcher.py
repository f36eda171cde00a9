"""The loop of one workspace, step by step: what becomes of everything taken, and how long a broker is left alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from app.celery_brokers import TaskBroker
from app.domain.errors import StoreUnavailable
from app.domain.tasks import OutboxBatch, TaskDispatch
from tests.live.workers.broker import dispatch
from tests.support.backends import wait_until
from workers import outbox_dispatcher
from workers.broker_publisher import BrokerUnavailable, Message, MessageRejected
from workers.outbox_dispatcher import IDLE_TIMEOUT_S, MAX_PAUSE_S, MIN_PAUSE_S, BrokerRoute, DispatchLoop, Pause

DEADLINE_S = 5.0
NOW_MS = 1_700_000_000_000


@dataclass
class FakeOutbox:
    """Gives what it is told to, and notes what it is told."""

    batches: list[list[TaskDispatch]] = field(default_factory=list)
    more: bool = False
    due_in_s: float | None = None
    wrong: list[Exception] = field(default_factory=list)
    take_calls: list[tuple[str, float, float, int]] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    back: list[tuple[list[str], float]] = field(default_factory=list)

    def take_outbox(self, workspace: str, claim_s: float, start_s: float, start_tries: int) -> OutboxBatch:
        """Return the next batch."""
        self.take_calls.append((workspace, claim_s, start_s, start_tries))
        if self.wrong:
            raise self.wrong.pop(0)
        due_ms = None if self.due_in_s is None else NOW_MS + int(self.due_in_s * 1000)
        return OutboxBatch(tuple(self.batches.pop(0) if self.batches else ()), self.more, due_ms, NOW_MS)

    def mark_dispatched(self, workspace: str, dispatches: Sequence[TaskDispatch], start_s: float) -> None:
        """Record the tasks."""
        assert start_s == DEADLINE_S
        self.sent += [dispatch.task for dispatch in dispatches]

    def mark_dispatch_failed(self, workspace: str, dispatches: Sequence[TaskDispatch], again_s: float) -> None:
        """Record the tasks."""
        self.back.append(([dispatch.task for dispatch in dispatches], again_s))


@dataclass
class Post:
    """Takes messages, but for those it is told not to."""

    fails: dict[str, Exception] = field(default_factory=dict)
    took: list[str] = field(default_factory=list)
    closed: bool = False

    def publish(self, message: Message) -> None:
        """Record the message, or raise."""
        task = message.headers["id"]
        if task in self.fails:
            raise self.fails[task]
        self.took.append(task)

    def close(self) -> None:
        """Record the call."""
        self.closed = True


def a_loop(outbox: FakeOutbox, post: Post) -> DispatchLoop:
    """Return a dispatch loop, as a worker makes it."""
    return DispatchLoop("w", BrokerRoute(TaskBroker("the file: w", "memory://", {}, DEADLINE_S, 4), post), outbox)


def tasks(names: str) -> list[TaskDispatch]:
    """Return one task for each letter, granted in this order."""
    return [dispatch(name, fence) for fence, name in enumerate(names, 1)]


def test_what_is_due_is_sent_in_the_order_it_was_granted_and_said_to_be(caplog: pytest.LogCaptureFixture) -> None:
    outbox, post = FakeOutbox([tasks("abc")[::-1]]), Post()
    assert a_loop(outbox, post).run_once() == Pause(DEADLINE_S), "the deadline of the start"
    assert outbox.take_calls == [("w", outbox_dispatcher.CLAIM_S, DEADLINE_S, 4)]
    assert (post.took, outbox.sent, outbox.back) == (list("abc"), list("abc"), [])
    assert caplog.records == []


@pytest.mark.parametrize(
    ("batches", "more", "due_in_s", "seconds"),
    [
        ([tasks("a")], True, 0.0, 0.0),
        ([], True, 0.0, outbox_dispatcher.MORE_DUE_S),
        ([], False, None, IDLE_TIMEOUT_S),
        ([], False, 2.5, 2.5),
        ([], False, 3600.0, IDLE_TIMEOUT_S),
        ([], False, -1.0, 0.0),
    ],
)
def test_when_it_looks_again(batches: list[list[TaskDispatch]], more: bool, due_in_s: float | None, seconds: float) -> None:
    assert a_loop(FakeOutbox(batches, more, due_in_s), Post()).run_once() == Pause(seconds)


def test_while_the_broker_is_away_everything_is_put_back_and_tried_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    outbox, post = FakeOutbox(more=True), Post({"b": BrokerUnavailable("gone")})
    loop = a_loop(outbox, post)
    outbox.batches = [tasks("abc")] + [tasks("bc")] * 9
    pauses = [loop.run_once() for _ in range(10)]
    assert (post.took, outbox.sent) == (["a"], ["a"])
    assert [back for back, _ in outbox.back] == [["b", "c"]] * 10
    assert [pause.seconds for pause in pauses] == [again_s for _, again_s in outbox.back], "nothing is due sooner"
    assert all(pause.ignores_wakeups for pause in pauses)
    expected = [min(MAX_PAUSE_S, MIN_PAUSE_S * 2**number) for number in range(10)]
    assert expected[0] == 0.5
    assert expected[-1] == 30
    assert all(0.75 * most <= pause.seconds <= most for pause, most in zip(pauses, expected, strict=True))
    assert [record.getMessage() for record in caplog.records] == [
        "the broker of workspace w is unavailable, tasks are kept: gone"
    ]

    caplog.clear()
    assert loop.run_once() == Pause(outbox_dispatcher.MORE_DUE_S), "another worker may have them"
    post.fails.clear()
    outbox.batches, outbox.more = [tasks("bc")], False
    assert loop.run_once() == Pause(DEADLINE_S)
    assert outbox.sent == list("abc")
    assert [record.getMessage() for record in caplog.records] == ["the broker of workspace w accepts tasks again"]
    post.fails["d"] = BrokerUnavailable("gone")
    outbox.batches = [tasks("d")]
    assert loop.run_once().seconds <= MIN_PAUSE_S, "it begins anew"


def test_what_is_not_taken_keeps_no_other(caplog: pytest.LogCaptureFixture) -> None:
    outbox, post = FakeOutbox([tasks("abc")]), Post({"b": MessageRejected("no such vhost")})
    assert a_loop(outbox, post).run_once() == Pause(DEADLINE_S)
    assert (outbox.sent, outbox.back) == (["a", "c"], [(["b"], MAX_PAUSE_S)])
    assert [record.getMessage() for record in caplog.records] == [
        "the broker does not accept task b of workspace w: no such vhost"
    ]


def test_a_broker_that_takes_nothing_is_as_good_as_away() -> None:
    outbox, post = FakeOutbox([tasks("ab")] * 3), Post(dict.fromkeys("ab", MessageRejected("OOM")))
    loop = a_loop(outbox, post)
    pauses = [loop.run_once() for _ in range(3)]
    assert [back for back, _ in outbox.back] == [["a", "b"]] * 3
    assert pauses[0].seconds < pauses[1].seconds < pauses[2].seconds
    assert not any(pause.ignores_wakeups for pause in pauses), "it may be only these that it does not take"


def test_an_invalid_message_is_handled_like_a_task_that_does_not_begin(caplog: pytest.LogCaptureFixture) -> None:
    outbox, post = FakeOutbox([[dispatch("a", message={"id": "a"}), *tasks("b")]]), Post()
    a_loop(outbox, post).run_once()
    assert post.took == ["b"]
    assert sorted(outbox.sent) == ["a", "b"], "so it holds its units for a while, and not for ever"
    assert outbox.back == []
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.ERROR, "task a of workspace w has no valid message: body is required")
    ]


# ---- as a thread


@contextmanager
def running(loop: DispatchLoop) -> Iterator[Callable[[], None]]:
    """Run the loop during the context, and yield the function that wakes it."""
    loop.start()
    try:
        yield loop.wake
    finally:
        loop.stop()
        loop.join()
        assert not loop._thread.is_alive()


def _waiting(outbox: FakeOutbox, times: int) -> None:
    wait_until(lambda: len(outbox.take_calls) >= times, f"it has looked {times} times")


def test_it_looks_when_it_is_woken_and_ends_when_it_is_told() -> None:
    outbox, post = FakeOutbox(), Post()
    with running(a_loop(outbox, post)) as wake:
        _waiting(outbox, 1)
        outbox.batches = [tasks("a")]
        wake()
        wait_until(lambda: outbox.sent == ["a"], "it is sent")
    assert post.closed


@pytest.mark.parametrize("wrong", [StoreUnavailable("unreachable", "Redis is gone"), ZeroDivisionError("a bug")])
def test_it_goes_on_whatever_goes_wrong(wrong: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STORE_RETRY_S", "IDLE_TIMEOUT_S"):
        monkeypatch.setattr(outbox_dispatcher, name, 0.01)
    outbox = FakeOutbox([tasks("a")], wrong=[wrong] * 3)
    with running(a_loop(outbox, Post())):
        wait_until(lambda: outbox.sent == ["a"], "it is sent")
    assert len(outbox.take_calls) >= 4


def test_a_broker_that_is_away_is_not_called_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_dispatcher, "MIN_PAUSE_S", 60.0)
    outbox, post = FakeOutbox([tasks("a"), tasks("b")]), Post({"a": BrokerUnavailable("gone")})
    with running(a_loop(outbox, post)) as wake:
        wait_until(lambda: outbox.back, "it is put back")
        for _ in range(3):
            wake()
    assert len(outbox.take_calls) == 1
    assert [back for back, _ in outbox.back] == [["a"]]
