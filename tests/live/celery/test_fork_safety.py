"""Threads that hold a lock while another thread forks the process."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Event, Thread

import pytest
from poolkeeper.celery import fork_safety


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
def test_a_fork_waits_for_what_a_thread_does() -> None:
    inside, forking, done = Event(), Event(), Event()

    def use() -> None:
        with fork_safety.block_forks():
            inside.set()
            forking.wait(10)
            done.set()

    os.register_at_fork(before=forking.set)
    Thread(target=use, daemon=True).start()
    assert inside.wait(10)
    assert _of_child(done.is_set) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
def test_a_fork_does_not_wait_for_ever_and_its_child_may_use_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_safety, "MAX_FORK_DELAY_S", 0.01)
    inside, end = Event(), Event()

    def use() -> None:
        with fork_safety.block_forks():
            inside.set()
            end.wait(10)

    def again() -> bool:
        with fork_safety.block_forks():
            return True

    using = Thread(target=use, daemon=True)
    using.start()
    assert inside.wait(10)
    assert _of_child(again) == 1
    end.set()
    using.join(10)
    assert again()


def _of_child(says: Callable[[], bool]) -> int:
    """Return the number that a forked child computes."""
    child = os.fork()
    if not child:
        os._exit(int(says()))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
