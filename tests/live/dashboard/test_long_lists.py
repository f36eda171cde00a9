"""With ten thousand in the queue a page is no larger, asks no more of Redis, and leads on to the end."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from app.domain.specs import RequestSpec
from app.store.scripts import Scripts
from tests.support.servers import Servers
from tests.unit.dashboard.page_client import Desk

MANY = 10_000


def test_a_page_of_ten_thousand_is_as_one_of_twelve_hundred(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(servers.client("embedded"))
    desk.pool(gpu=64)
    for team in range(10):
        desk.policy(f"team-{team}", limit={"gpu": 16})
    _wait(desk, 1264)
    few, calls_of_few = _looked_at(desk, monkeypatch)
    _wait(desk, MANY - 1200)
    assert desk.services.pools.get("default", "gpus").queue_length == MANY
    many, calls_of_many = _looked_at(desk, monkeypatch)
    assert len(re.findall(r'<tr id="q-', many)) == len(re.findall(r'<tr id="q-', few)) == 50
    assert len(many) < 1.1 * len(few)
    assert calls_of_many["explain"] == calls_of_few["explain"] == 50
    assert calls_of_many.total() <= calls_of_few.total() + 1, (calls_of_many, calls_of_few)  # a look for tokens, once a second
    assert "Later in the queue" in many
    last = _last_page(desk)
    assert f">{MANY:,}<" in last
    desk.services.long_polls.close()


def _wait(desk: Desk, count: int) -> None:
    asks = [RequestSpec(component=f"team-{number % 10}", resources={"gpu": 1}, walltime_s=600) for number in range(count)]
    for first in range(0, count, 1000):
        desk.services.requests.submit_batch("default", asks[first : first + 1000])


def _looked_at(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Counter[str]]:
    """Return the page, and the number of calls by script that it took."""
    calls: Counter[str] = Counter()
    call = Scripts.call

    def counted(self: Scripts, command: str, *words: Any, **args: Any) -> Any:
        calls[command] += 1
        return call(self, command, *words, **args)

    with monkeypatch.context() as patched:
        patched.setattr(Scripts, "call", counted)
        desk.services.estimates._entries.clear()
        return desk.visitor().get("/pools/gpus").get_data(as_text=True), calls


def _last_page(desk: Desk) -> str:
    """Return the address of the last page, by way of cursors; nine thousand rows are skipped."""
    rows, follows = desk.services.queries.list_pool_requests("default", "gpus", "queued", None, 1000)
    while follows and (rows[-1].position or 0) < MANY - 50:
        count = min(1000, MANY - 50 - (rows[-1].position or 0))
        rows, follows = desk.services.queries.list_pool_requests("default", "gpus", "queued", follows, count)
    return desk.visitor().get(f"/pools/gpus?queue={follows}").get_data(as_text=True)
