"""A token under gunicorn that wants every stream and every long poll."""

from __future__ import annotations

import asyncio
from pathlib import Path

from app.service.tokens import Tokens
from app.store.connection import connect
from app.store.tokens import TokenStore
from tests.live.api.async_clients import PREFIX, Line
from tests.support.gunicorn_service import Service, service

STREAMS = 220
"""The streams of one token that kept out every other workspace."""
OF_ONE_TOKEN = 40
"""In two processes of 640 threads."""


async def _open_stream(made: Service, line: Line, secret: str) -> int:
    headers = {"Authorization": f"Bearer {secret}", "Accept": "text/event-stream"}
    await line.send("GET", f"{PREFIX}/events", headers=headers)
    return (await line.head())[0]


def test_the_streams_of_one_token_keep_out_no_other(tmp_path: Path) -> None:
    async def play(made: Service) -> None:
        with connect(made.redis.url) as client:
            tokens = Tokens(TokenStore(client))
            greedy, other = (tokens.create(name, "viewer", [name])[1] for name in ("greedy", "other"))
        lines = [Line(made.port) for _ in range(STREAMS + 1)]
        for line in lines:
            await line.__aenter__()
        statuses = await asyncio.gather(*(_open_stream(made, line, greedy) for line in lines[:STREAMS]))
        assert set(statuses) == {200, 429}
        assert statuses.count(200) <= OF_ONE_TOKEN
        assert await _open_stream(made, lines[STREAMS], other) == 200
        for line in lines:
            line.hang_up()
        async with Line(made.port) as line:
            assert await _open_stream(made, line, other) == 200

    with service(tmp_path) as made:
        asyncio.run(play(made))
