"""Many clients in one thread: HTTP over asyncio, so that five hundred that wait cost next to nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

PREFIX = "/api/v1"
PATIENCE_S = 40


@dataclass(frozen=True)
class Answer:
    """An HTTP answer; the names of its headers are in lower case."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        """Return the body, parsed."""
        return json.loads(self.text)


@dataclass(frozen=True)
class Heard:
    """An event of a stream."""

    id: str
    name: str
    data: dict[str, Any]


class Line:
    """A connection, kept alive for as long as the context."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Line:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.hang_up()
        with suppress(OSError):
            await self.writer.wait_closed()

    def hang_up(self) -> None:
        """Close the connection abruptly, whatever is under way."""
        self.writer.transport.abort()

    async def send(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> None:
        """Ask."""
        data = b"" if body is None else json.dumps(body).encode()
        text = {"Host": "localhost", "Content-Length": str(len(data)), **(headers or {})}
        if data:
            text["Content-Type"] = "application/json"
        head = "".join(f"{name}: {value}\r\n" for name, value in text.items())
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + data)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        """Read the status and the headers of an answer."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = (line.partition(": ") for line in lines[1:] if line)
        return int(lines[0].split()[1]), {name.lower(): value for name, _, value in pairs}

    async def answer(self) -> Answer:
        """Read a whole answer."""
        status, headers = await self.head()
        if "content-length" in headers or status == 204:
            text = await self.reader.readexactly(int(headers.get("content-length", 0)))
        else:
            text = b"".join([piece async for piece in self.pieces()])
        return Answer(status, headers, text.decode())

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the chunks of a body, until the last one."""
        while size := int((await self.reader.readuntil(b"\r\n")).decode(), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)

    async def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Ask, and wait for the answer."""
        async with asyncio.timeout(PATIENCE_S):
            await self.send(method, path, body, headers)
            return await self.answer()


class Crowd:
    """Clients of one API."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Send a request on a connection of its own."""
        async with Line(self.port) as line:
            return await line.ask(method, path, body, headers)

    async def pool(self, **capacity: int) -> None:
        """Create a pool `p` that the component `t` may use."""
        assert (await self.ask("POST", f"{PREFIX}/pools", {"name": "p", "capacity": capacity})).status == 201
        assert (await self.ask("PUT", f"{PREFIX}/pools/p/policies/t", {"priority": 1})).status == 201

    async def submit(self, gpu: int = 1, **more: Any) -> Any:
        """Submit a request for this many gpu, and return it."""
        requests = {"component": "t", "resources": {"gpu": gpu} if gpu else {}, **more}
        answer = await self.ask("POST", f"{PREFIX}/requests", requests)
        assert answer.status == 201, answer
        return answer.json

    async def release(self, allocation: Mapping[str, Any]) -> Any:
        """Give it back."""
        answer = await self.ask("POST", f"{PREFIX}/requests/{allocation['id']}/release", {"fence": allocation["fence"]})
        assert answer.status == 200, answer
        return answer.json

    async def poll(self, request: str, wait_s: float = 60) -> Answer:
        """Poll until the request is no longer queued."""
        return await self.ask("GET", poll_path(request, wait_s))

    async def waiting(self) -> dict[str, int]:
        """Return the number of held calls by kind, as the API's metrics count them."""
        page = (await self.ask("GET", "/metrics")).text
        rows = [line for line in page.splitlines() if line.startswith("poolkeeper_http_waiting{")]
        return {row.split('"')[1]: round(float(row.split()[-1])) for row in rows}

    async def until_waiting(self, within_s: float = 20, **allocation: int) -> None:
        """Wait until exactly this many calls are held: `until_waiting(poll=500)`."""
        try:
            async with asyncio.timeout(within_s):
                while True:
                    now = await self.waiting()
                    if all(now.get(kind, 0) == count for kind, count in allocation.items()):
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not within {within_s:g} s: {allocation} are held; it is {await self.waiting()}") from None


class Stream:
    """A stream of events that comes back by itself, as a browser does; what it heard is in `heard`."""

    def __init__(self, port: int, after: str | None = None) -> None:
        self._port = port
        self.last = after
        self.heard: list[Heard] = []
        self.begun = 0
        """The number of connections made so far."""
        self.ended = 0
        """The number of streams that ended in good order."""

    async def listen(self) -> None:
        """Record every event, until cancelled."""
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                async with Line(self._port) as line:
                    await self._follow(line)
            await asyncio.sleep(0.1)

    async def _follow(self, line: Line) -> None:
        await line.send("GET", f"{PREFIX}/events", None, {"Last-Event-ID": self.last} if self.last else {})
        status, _ = await line.head()
        if status != 200:
            return
        self.begun += 1
        left = ""
        async for piece in line.pieces():
            *parts, left = (left + piece.decode()).split("\n\n")
            for part in parts:
                self._take(part)
        self.ended += 1

    def _take(self, part: str) -> None:
        text = dict(row.split(": ", 1) for row in part.split("\n") if row[:1] != ":")
        self.last = text.get("id", self.last)
        if "event" in text:
            self.heard.append(Heard(text["id"], text["event"], json.loads(text["data"])))


def poll_path(request: str, wait_s: float = 60) -> str:
    """Return the path and query of a long poll."""
    return f"{PREFIX}/requests/{request}?wait_s={wait_s}&status=queued"


async def until(condition: Any, name: str, within_s: float = 20) -> None:
    """Wait until the condition holds."""
    try:
        async with asyncio.timeout(within_s):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {within_s:g} s: {name}") from None
