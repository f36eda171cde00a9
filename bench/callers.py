"""Many HTTP clients in one thread: keep-alive sockets on the loopback address, each with at most one call under way.

They are as cheap as possible in Python, since they run on the cores of the server that they measure.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import time
from collections.abc import Iterable, Mapping

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
PATIENCE_S = 30


def request(method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of an HTTP request."""
    text = b"" if body is None else json.dumps(body).encode()
    fields = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(text)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + text


class Caller:
    """One HTTP client."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._come = b""

    def send(self, sent: bytes) -> None:
        """Send the bytes of a call."""
        self._come = b""
        self.sock.sendall(sent)

    def receive(self) -> bytes | None:
        """Receive a piece of the answer. Return the body once it is complete, else None. Raise RuntimeError unless 2xx."""
        piece = self.sock.recv(262_144)
        self._come += piece
        head, end, body = self._come.partition(b"\r\n\r\n")
        if piece and (not end or len(body) < _length(head)):
            return None
        if not head.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(f"answered {self._come[:500]!r}")
        return body

    def ask(self, sent: bytes) -> bytes:
        """Send a call, and wait for its answer."""
        self.send(sent)
        while (body := self.receive()) is None:
            pass
        return body

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()


def _length(head: bytes) -> int:
    match = _LENGTH.search(head)
    return int(match[1]) if match else 0


class Callers:
    """A number of clients that call at the same time."""

    def __init__(self, port: int, count: int) -> None:
        self.all = [Caller(port) for _ in range(count)]
        self._selector = selectors.DefaultSelector()
        for caller in self.all:
            self._selector.register(caller.sock, selectors.EVENT_READ, caller)

    def close(self) -> None:
        """Close all connections."""
        self._selector.close()
        for caller in self.all:
            caller.close()

    def come(self) -> Iterable[tuple[Caller, bytes]]:
        """Wait for data, and yield each client whose answer is complete now, with the answer."""
        ready = self._selector.select(PATIENCE_S)
        if not ready:
            raise RuntimeError(f"nothing was answered in {PATIENCE_S} s")
        for key, _ in ready:
            if (body := key.data.receive()) is not None:
                yield key.data, body

    def seconds(self, sent: bytes, calls: int) -> float:
        """Return the seconds that a number of calls take, with one call at a time in each client."""
        start, left, under_way = time.perf_counter(), calls, 0
        for caller in self.all[:calls]:
            caller.send(sent)
            left, under_way = left - 1, under_way + 1
        while under_way:
            for caller, _ in self.come():
                under_way -= 1
                if left:
                    caller.send(sent)
                    left, under_way = left - 1, under_way + 1
        return time.perf_counter() - start


# ---- functions that run in another process


def seconds(port: int, clients: int, sent: bytes, calls: int) -> float:
    """Return the seconds that a number of calls take."""
    callers = Callers(port, clients)
    try:
        return callers.seconds(sent, calls)
    finally:
        callers.close()


def handed_on(port: int, waiters: list[str], holder: tuple[str, int], releases: int, headers: Mapping[str, str]) -> list[float]:
    """Release one allocation after the other while every waiter is in a long poll.

    Return the seconds from each release to the answer of the next poll. The waiters are queued in this order behind `holder`, a
    request and its fence.
    """
    polls, hand = Callers(port, len(waiters)), Caller(port)
    try:
        _hold(polls, hand, waiters, headers)
        took: list[float] = []
        done: set[Caller] = set()
        for next_caller in polls.all[:releases]:
            start = time.perf_counter()
            hand.send(_release(*holder, headers))
            answer = next(body for caller, body in _answers(polls, done) if caller is next_caller)
            took.append(time.perf_counter() - start)
            while hand.receive() is None:
                pass
            granted = json.loads(answer)
            holder = granted["id"], granted["fence"]
        return took
    finally:
        polls.close()
        hand.close()


def all_at_once(port: int, waiters: list[str], holder: tuple[str, int], headers: Mapping[str, str]) -> list[float]:
    """Grant every waiter by one release, while all are in long polls. Return the seconds until each answer, in order."""
    polls, hand = Callers(port, len(waiters)), Caller(port)
    try:
        _hold(polls, hand, waiters, headers)
        took: list[float] = []
        start = time.perf_counter()
        hand.send(_release(*holder, headers))
        while len(took) < len(waiters):
            for _, body in polls.come():
                took.append(time.perf_counter() - start)
                assert json.loads(body)["status"] == "allocated", body
        return took
    finally:
        polls.close()
        hand.close()


def _answers(polls: Callers, done: set[Caller]) -> Iterable[tuple[Caller, bytes]]:
    while True:
        for caller, body in polls.come():
            if caller in done or json.loads(body)["status"] != "allocated":
                raise RuntimeError(f"an unexpected answer to a poll: {body[:300]!r}")
            done.add(caller)
            yield caller, body


def _poll(waiter: str, headers: Mapping[str, str]) -> bytes:
    return request("GET", f"/api/v1/requests/{waiter}?wait_s=60&status=queued", headers=headers)


def _release(request_id: str, fence: int, headers: Mapping[str, str]) -> bytes:
    return request("POST", f"/api/v1/requests/{request_id}/release", {"fence": fence}, headers)


def _hold(polls: Callers, hand: Caller, waiters: list[str], headers: Mapping[str, str]) -> None:
    """Start the long poll of every waiter, and wait until the server counts all of them; before, it has to count none."""
    _wait_for_polls(hand, 0)
    for caller, waiter in zip(polls.all, waiters, strict=True):
        caller.send(_poll(waiter, headers))
    _wait_for_polls(hand, len(waiters))


def _wait_for_polls(caller: Caller, polls: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while (count := _count_polls(caller)) != polls:
        if time.monotonic() > until:
            raise RuntimeError(f"{count} polls are held, and it should be {polls}")
        time.sleep(0.1)


def _count_polls(caller: Caller) -> float:
    page = caller.ask(request("GET", "/metrics")).decode()
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith('poolkeeper_http_waiting{kind="poll"'))
