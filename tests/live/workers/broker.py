"""Messages for a broker, a real one that can be killed and frozen, and what has arrived there."""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis import Redis

from app.domain.tasks import TaskDispatch, TaskEnd
from app.store.child_process import ChildProcess
from app.store.embedded_redis import find_server
from tests.support.backends import free_port, require, wait_until

BODY = b'[[1], {"a": "\xc3\xa9"}, {"callbacks": null}]'
QUEUE = {"name": "celery", "exchange": {"name": "celery", "type": "direct"}, "routing_key": "celery", "durable": True}


def document(task: str = "a", **more: Any) -> dict[str, Any]:
    """Return a message as the ledger stores it."""
    return {
        "id": task,
        "body": base64.b64encode(BODY).decode(),
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "headers": {"id": task, "task": "proj.train", "eta": None},
        "properties": {"correlation_id": task, "reply_to": "answers", "delivery_mode": 2},
        "exchange": "",
        "exchange_type": "direct",
        "routing_key": "celery",
        "queues": [QUEUE],
        **more,
    }


def dispatch(task: str = "a", fence: int | None = 7, ended: TaskEnd | None = None, **more: Any) -> TaskDispatch:
    """Return the dispatch of a task."""
    message = more.pop("message", None) or document(task, **more)
    return TaskDispatch(task, f"r-{task}", fence, message, "gpus", {"gpu": 1}, 60, False, None, 1, False, ended)


@dataclass
class Broker:
    """A Redis of its own, behind a password."""

    folder: Path
    port: int = field(default_factory=free_port)
    password: str = "s3cret"
    server: ChildProcess | None = None

    @property
    def url(self) -> str:
        """Return the URL of the broker."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    @property
    def socket(self) -> Path:
        """Return the broker's Unix socket."""
        return self.folder / "broker.sock"

    @property
    def client(self) -> Redis:
        """Return a client that reads the broker's data."""
        return Redis(port=self.port, password=self.password, decode_responses=True, protocol=2, socket_timeout=5)

    def start(self) -> None:
        """Start the broker with the data of its last run, and wait until it answers."""
        options = ("--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", str(self.socket), "--dir", str(self.folder))
        persistence_options = ("--save", "", "--appendonly", "yes", "--appendfsync", "always", "--requirepass", self.password)
        self.server = ChildProcess([find_server("path"), *options, *persistence_options], self.folder / "broker.log")
        wait_until(self.client.ping, "the broker answers")

    def kill(self) -> None:
        """Kill the broker."""
        if self.server:
            self.server.kill()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the broker with SIGSTOP: connections stay open, and nothing is sent on them."""
        assert self.server
        self.server.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.server.send_signal(signal.SIGCONT)

    def arrived(self, queue: str = "celery") -> list[dict[str, Any]]:
        """Return the messages in a queue, the oldest first."""
        return [json.loads(text) for text in reversed(self.client.lrange(queue, 0, -1))]

    def list_deliveries(self, queue: str = "celery") -> list[tuple[str, dict[str, Any]]]:
        """Return the task and the Poolkeeper header of each message."""
        return [(message["headers"]["id"], message["headers"]["poolkeeper"]) for message in self.arrived(queue)]


@contextmanager
def a_broker(folder: Path) -> Iterator[Broker]:
    """Yield a broker for as long as the context; it has not been started."""
    require("redis")
    folder.mkdir(exist_ok=True)
    made = Broker(folder)
    try:
        yield made
    finally:
        made.kill()
