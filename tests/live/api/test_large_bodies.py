"""Large bodies under gunicorn: others are served meanwhile, memory stays bounded, and comes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.api.async_clients import PREFIX, Answer, Crowd, Line, until
from tests.support.gunicorn_service import Service, service

CLIENTS, ROUNDS = 16, 3
MAX_BODY_BYTES = 4 * 2**20
MORE_AT_MOST_MB = 300
"""The largest growth of a process under large bodies, in megabytes. Without limits, 16 clients made it grow by 560 MB."""
KEPT_AT_MOST_MB = 90
"""The largest part of that growth that stays, in megabytes; it does not depend on the number of bodies."""


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Service]:
    """Yield an API of one process with 16 slots for large bodies."""
    with service(tmp_path, api_processes=1, api_threads=320) as made:
        yield made
        assert made.complaints() == []


def _unknown_fields(number: int) -> bytes:
    return b"{" + b",".join(b'"k%d":1' % each for each in range(number)) + b"}"


def _declaration(policies: int) -> bytes:
    rows = [{"component": f"c{number}", "reserved": {"gpu": 1}, "limit": {"gpu": 2}} for number in range(policies)]
    return json.dumps({"pools": [{"name": "p", "capacity": {"gpu": 2}, "policies": rows}]}).encode()


BODIES = (
    ("/dry-run", _unknown_fields(300_000), {413}),
    ("/dry-run", _unknown_fields(99_000), {400}),
    ("/declaration/plan", _declaration(15_000), {422}),
    ("/dry-run", b'{"pad":"' + b"x" * (MAX_BODY_BYTES - 10) + b'"}', {400}),
)
"""Path, body and statuses: too many members, many faults, much that is valid, many bytes."""


async def _send(api: Service, path: str, body: bytes) -> Answer:
    async with Line(api.port) as line:
        head = f"POST {PREFIX}{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        line.writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return await line.answer()


def test_memory_is_bounded_and_comes_back(api: Service) -> None:
    async def play() -> None:
        crowd = Crowd(api.port)
        assert (await _send(api, "/dry-run", BODIES[1][1])).status == 400  # what is allocated once
        before, most = api.resident_mb(), 0.0
        for _ in range(ROUNDS):
            for path, body, statuses in BODIES:
                senders = [asyncio.create_task(_send(api, path, body)) for _ in range(CLIENTS)]
                while not all(sender.done() for sender in senders):
                    assert (await crowd.ask("GET", "/healthz")).status == 200
                    most = max(most, api.resident_mb())
                assert {sender.result().status for sender in senders} <= statuses | {503}
        assert most < before + MORE_AT_MOST_MB
        await until(lambda: api.resident_mb() < before + KEPT_AT_MOST_MB, "memory comes back")

    asyncio.run(play())
