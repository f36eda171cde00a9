"""The API under gunicorn, one process of a few threads, on a Redis of its own that can be killed and started again."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

from app.cli.process_commands import commands
from app.service.tokens import Tokens
from app.store.child_process import ChildProcess
from app.store.connection import connect
from app.store.embedded_redis import find_server
from app.store.tokens import TokenStore
from tests.support.backends import free_port, require, short_folder, wait_until, wait_until_ready
from tests.support.forked_process import ForkedProcess
from tests.support.in_process_api import BROKERS, Said
from tests.support.paths import ROOT


class Live:
    """A running API; what it logs is in `log`."""

    def __init__(self, folder: Path, place: Path, **settings: object) -> None:
        self._folder, self._socket = folder, place / "live.sock"
        self.redis_url = f"unix://{self._socket}"
        self.log = folder / "api.log"
        self.port = free_port()
        self.redis: ChildProcess | None = None
        self.start_redis()
        env = _environment(self.redis_url, self.port, folder, settings)
        self._api = ForkedProcess(commands()["api"], self.log, env=env, cwd=folder)
        wait_until(lambda: self.ask("GET", "/readyz").status == 200, f"the API answers; see {self.log}")

    @property
    def url(self) -> str:
        """Return the URL of the API."""
        return f"http://127.0.0.1:{self.port}"

    def start_redis(self) -> None:
        """Start an empty Redis."""
        options = ("--port", "0", "--unixsocket", str(self._socket), "--save", "", "--appendonly", "no")
        self.redis = ChildProcess([find_server("path"), *options], self._folder / "redis.log")
        wait_until_ready(self.redis_url)

    def kill_redis(self) -> None:
        """Kill Redis."""
        assert self.redis is not None
        self.redis.kill()

    def empty(self) -> None:
        """Delete all data and tokens."""
        with connect(self.redis_url) as client:
            client.flushall()
        wait_until(lambda: self.ask("GET", "/api/v1/pools").status == 200, "it is known that there is no token")

    def token(self, role: str, *components: str) -> str:
        """Create a token and return its secret; from now on every call needs one."""
        with connect(self.redis_url) as client:
            secret = Tokens(TokenStore(client)).create(role, role, ["*"], components)[1]
        wait_until(lambda: self.ask("GET", "/api/v1/pools").status == 401, "it is known that there is a token")
        return secret

    def lines(self) -> list[dict[str, Any]]:
        """Return the log, an entry a line."""
        return [json.loads(line) for line in self.log.read_text("utf-8").splitlines()]

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, *, raw: bytes | None = None
    ) -> Said:
        """Send a call on a connection of its own, with the path as it is."""
        sent = dict(headers or {})
        data = raw if body is None else json.dumps(body).encode()
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, data, sent)
            return read_response(connection.getresponse())
        except HTTPException as broken:
            raise OSError(str(broken)) from broken
        finally:
            connection.close()

    def send(self, *pieces: bytes) -> Said:
        """Send these bytes, and return the response."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as line:
            for piece in pieces:
                line.sendall(piece)
            answer = HTTPResponse(line, method="GET")
            answer.begin()
            return read_response(answer)

    def stop(self) -> None:
        """Stop the API and Redis."""
        self._api.stop()
        if self.redis:
            self.redis.stop()


def read_response(answer: HTTPResponse) -> Said:
    """Read a response: status, headers and body."""
    text = answer.read().decode()
    kind = answer.headers.get("Content-Type", "")
    return Said(answer.status, dict(answer.headers), json.loads(text) if text and "json" in kind else text)


@contextmanager
def live_api(folder: Path, **settings: object) -> Iterator[Live]:
    """Run an API for as long as the context."""
    require("redis")
    with short_folder(folder) as place:
        live = Live(folder, place, **settings)
        try:
            yield live
        finally:
            live.stop()


def _environment(redis_url: str, port: int, folder: Path, settings: Mapping[str, object]) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("POOLKEEPER_", "PROMETHEUS_"))}
    settings_with_defaults = {
        "redis_url": redis_url,
        "data_dir": folder / "data",
        "host": "127.0.0.1",
        "port": port,
        "api_processes": 1,
        "api_threads": 32,
        "redis_timeout_s": 1,
        "brokers": BROKERS,
        **settings,
    }
    return (
        clean
        | {"PYTHONPATH": str(ROOT)}
        | {f"POOLKEEPER_{name.upper()}": str(value) for name, value in settings_with_defaults.items()}
    )
