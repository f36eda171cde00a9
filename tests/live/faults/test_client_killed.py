"""A client killed between any two of its calls loses nothing: whoever comes next finishes the work, and a repeated change says
what it would have said."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from app.store.connection import RedisClient
from tests.live.faults.change_sequence import CHANGES, WORKSPACE, read_state, repeat_change, run_changes, set_up
from tests.live.races import settled_invariants
from tests.live.races.processes import CONTEXT, TIMES
from tests.support.servers import Servers
from tests.support.world import World


def run(client: RedisClient, diary: Path, last: int, *, sent: bool) -> int | None:
    """The story in a process that dies at the given call; how the process ended."""
    path = client.connection_pool.connection_kwargs["path"]  # type: ignore[union-attr]
    process = CONTEXT.Process(target=run_changes, args=(path, diary, last, sent))
    process.start()
    process.join(60)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError("the story does not end")
    return process.exitcode


def whole(client: RedisClient, diary: Path) -> tuple[int, dict[str, Any]]:
    """The story with nobody killed: how many calls it takes, and what becomes of everything."""
    for _ in range(2):  # the first time the server does not know all of the scripts yet, which takes calls of its own
        set_up(client)
        assert run(client, diary, 0, sent=False) == 0
    return int(diary.read_text().split()[1]), read_state(client)


@pytest.mark.parametrize("sent", [False, True], ids=["before a call", "with the answer unread"])
def test_a_client_killed_anywhere(servers: Servers, tmp_path: Path, sent: bool) -> None:
    client, diary = servers.client("redis"), tmp_path / "diary"
    calls, expected = whole(client, diary)
    assert calls > 2 * len(CHANGES), "the changes are not made in pieces"
    for last in range(1, calls + 1, 1 if sent or TIMES > 1 else 3):  # to the server the two look nearly the same
        set_up(client)
        assert run(client, diary, last, sent=sent) == -signal.SIGKILL
        survivor = World(client, WORKSPACE, chunk=1)
        while survivor.ledger.resume_unfinished(WORKSPACE):
            pass
        settled_invariants.check(client, survivor.ledger, WORKSPACE, lowered=True)
        for name in list(CHANGES)[int(diary.read_text()) :]:
            repeat_change(survivor, name)
        settled_invariants.check(client, survivor.ledger, WORKSPACE, lowered=True)
        assert read_state(client) == expected, f"killed at call {last} of {calls}"
