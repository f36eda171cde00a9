"""The waiting line of `run`: its text, its width and its questions; and the message about the last retry."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from poolkeeper.models import Request
from poolkeeper.runner import progress, run_loop
from poolkeeper.runner.progress import Progress
from poolkeeper.runner.waiting_line import WaitDetails, read_details, waiting_line

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
REASON = "it needs 4 gpu, and policy orchestrator/vision uses 2 of the 4 that it may use at most"
FULL = f"waiting in gpus: 3rd in the queue, 2 ahead, since 14:03 (1m20s), likely in 5m: {REASON}"


def line(width: int, details: WaitDetails | None = None) -> str:
    return waiting_line({"gpus": 3}, "14:03", 80, details or WaitDetails("likely in 5m", "over_limit", REASON), width)


@pytest.mark.parametrize("width", range(20, 201))
def test_the_line_fits_and_is_cut_between_words(width: int) -> None:
    shown = line(width)
    words = {word.strip(",:;") for word in f"{FULL} for 1m20s".split()}
    assert len(shown) <= width
    assert {word.strip(",:;…") for word in shown.split()} <= words
    assert shown.startswith(("waiting in gpus: 3rd", "3rd in gpus"))
    assert shown == FULL or width < len(FULL)


def test_less_important_parts_are_left_out_first() -> None:
    lines = [
        FULL,
        f"waiting in gpus: 3rd in the queue, 2 ahead, for 1m20s, likely in 5m: {REASON}",
        f"3rd in gpus, for 1m20s, likely in 5m: {REASON}",
        f"3rd in gpus, likely in 5m: {REASON}",
        f"3rd in gpus: {REASON}",
    ]
    assert [line(len(shown)) for shown in lines] == lines
    assert [line(len(shown) - 1) for shown in lines[:-1]] == lines[1:]
    assert line(60) == "3rd in gpus: it needs 4 gpu, and policy orchestrator/vision…"
    assert line(20) == "3rd in gpus: it…"


def test_a_usual_reason_is_shown_in_eighty_columns() -> None:
    details = WaitDetails("likely in 5m", "no_capacity", "it needs 4 gpu, and 2 of 8 are free")
    shown = line(79 - len("poolkeeper: "), details)
    assert shown == "3rd in gpus, likely in 5m: it needs 4 gpu, and 2 of 8 are free"


def pool(likely: str | None, sentence: str | None, **estimate: Any) -> dict[str, Any]:
    start = {"likely": likely, "is_rough": False, **estimate} if likely else None
    return {"pool": "p", "estimated_start": start, "verdict": sentence and "held", "sentence": sentence}


def test_the_details_is_the_first_start_and_the_first_reason() -> None:
    later, sooner = "2026-01-31T13:00:00Z", "2026-01-31T12:04:10Z"
    assert read_details([pool(later, None), pool(sooner, "why")], NOW) == WaitDetails("likely in 5m", "held", "why")
    assert read_details([pool("2026-01-31T11:00:00Z", None)], NOW) == WaitDetails("likely any moment")
    assert read_details([pool(None, None)], NOW) == read_details([], NOW) == WaitDetails()


def test_a_start_from_few_run_times_says_so() -> None:
    for count, words in ((0, "no run times"), (1, "1 run time"), (4, "4 run times")):
        estimate = pool("2026-01-31T12:05:00Z", None, is_rough=True, run_times=count)
        assert read_details([estimate], NOW).start == f"likely in 5m (from {words})"


class Clock:
    """The time of a process, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_without_a_terminal_a_short_wait_asks_nothing(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_is_writable", lambda *_: True)
    monkeypatch.setattr(time, "strftime", lambda *_: "14:03")
    shown, request = Progress(), Request("r1", "queued", position={"gpus": 3})
    shown.begin_waiting()
    shown.show_position(request)
    wants = [shown.wants_details]
    clock.now_s += progress.REPEAT_AFTER_S
    wants.append(shown.wants_details)
    for reason in ("it needs 4 gpu, and 2 of 8 are free", "it needs 4 gpu, and 1 of 8 are free"):
        shown.set_details(WaitDetails("likely in 5m", "no_capacity", reason))
        shown.show_position(request)
        wants.append(shown.wants_details)
        clock.now_s += progress.REPEAT_AFTER_S
    place = "poolkeeper: request r1: waiting in gpus: 3rd in the queue, 2 ahead, since 14:03"
    assert capsys.readouterr().err == f"{place}\n{place}: it needs 4 gpu, and 2 of 8 are free\n", "the verdict is the same"
    assert [*wants, Progress(quiet=True).wants_details] == [False, True, False, False, False]


def test_a_live_line_asks_every_few_seconds(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    shown = Progress()
    shown.begin_waiting()
    wants = [shown.wants_details]
    shown.set_details(WaitDetails())
    wants.append(shown.wants_details)
    clock.now_s += progress.DETAILS_EVERY_S
    assert [*wants, shown.wants_details] == [True, False, True]


@pytest.mark.parametrize(
    ("retries", "preemptions", "is_said"), [(3, 3, True), (3, 2, False), (0, 0, False), (-1, 3, False), (1, 1, True)]
)
def test_the_last_retry_is_said(retries: int, preemptions: int, is_said: bool) -> None:
    request = Request("r1", "allocated", resources={"gpu": 1}, fence=7, retries=retries, preemptions=preemptions)
    last = "; this is its last retry: the next preemption ends it" if is_said else ""
    assert run_loop._grant_message(request) == f"request r1 has gpu=1 under fence 7{last}"
