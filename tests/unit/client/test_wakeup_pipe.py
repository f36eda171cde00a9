"""The wake-up pipe, and signals that do not interrupt the wait of the main thread."""

from __future__ import annotations

import os
import pty
import signal
import sys
import time
from collections.abc import Iterator

import pytest
from poolkeeper.cli.keyboard import open_keyboard
from poolkeeper.wakeup_pipe import WakeupPipe

from tests.support.signals import another_thread_gets

LONG_S = 20.0
WITHIN_S = 10.0
"""The seconds within which a wait ends that was woken; much less than LONG_S, much more than a busy machine needs."""


@pytest.fixture
def wakeup() -> Iterator[WakeupPipe]:
    """Yield a wake-up pipe."""
    pipe = WakeupPipe()
    yield pipe
    pipe.close()


def test_a_call_before_the_wait_ends_it(wakeup: WakeupPipe) -> None:
    wakeup.wake()
    began_s = time.monotonic()
    assert wakeup.wait(LONG_S) == []
    assert time.monotonic() - began_s < WITHIN_S


def test_the_readable_files_are_returned(wakeup: WakeupPipe) -> None:
    read_end, write_end = os.pipe()
    try:
        os.write(write_end, b".")
        assert wakeup.wait(LONG_S, [read_end]) == [read_end]
    finally:
        os.close(read_end)
        os.close(write_end)


def test_a_signal_that_does_not_interrupt_the_wait_ends_it(wakeup: WakeupPipe) -> None:
    previous_handler = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with wakeup.woken_by_signals(), another_thread_gets(signal.SIGUSR1):
            began_s = time.monotonic()
            wakeup.wait(LONG_S)
            waited_s = time.monotonic() - began_s
    finally:
        signal.signal(signal.SIGUSR1, previous_handler)
    assert waited_s < WITHIN_S
    assert signal.set_wakeup_fd(-1) == -1, "the previous file descriptor is set again"


def test_a_resize_that_does_not_interrupt_the_wait_for_a_key_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, outside = pty.openpty()
    with os.fdopen(inside, "rb"), os.fdopen(outside) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        with open_keyboard() as keyboard, another_thread_gets(signal.SIGWINCH):
            began_s = time.monotonic()
            assert keyboard.wait(LONG_S) == []
            waited_s = time.monotonic() - began_s
    assert waited_s < WITHIN_S
