"""A task's message as Celery would have published it, kept as a document for whoever publishes it later.

`Recorder` is given to Celery in place of a producer. What it is told to publish first it hands over; whatever follows (the
event that the task was sent) goes to the producer behind it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from celery import Celery
from celery.exceptions import ImproperlyConfigured
from celery.utils.time import maybe_iso8601, maybe_make_aware
from kombu import Exchange, Producer, Queue
from kombu.compression import compress
from kombu.entity import maybe_delivery_mode
from kombu.serialization import dumps

SENT = "poolkeeper"
"""The header by which a worker knows under which grant a message was published."""

DELAYING = re.compile(r"celery_delayed_\d+")
"""The exchanges through which Celery delays a message in RabbitMQ."""
UNDELAYED = ".".join("0" * 28) + "."

OF_THE_SENDING = ("expiration", "redelivered", "retry", "retry_policy", "timeout", "confirm_timeout")
"""What concerns one publication, and not the next: an end is in the headers, where the worker looks for it."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_DECLARED = ("name", "durable", "auto_delete", "no_declare")
_QUEUE = (*_DECLARED, "routing_key", "exclusive", "queue_arguments", "binding_arguments", "expires", "message_ttl")
_LENGTHS = ("max_length", "max_length_bytes", "max_priority")
_EXCHANGE = (*_DECLARED, "type", "arguments", "delivery_mode")


@dataclass(frozen=True, slots=True)
class Captured:
    """A message, and what of it concerns the time until it may be published."""

    id: str
    document: dict[str, Any]
    body: Any
    not_before: datetime | None
    expires: datetime | None

    @property
    def headers(self) -> dict[str, Any]:
        """Celery's headers, as they will be published."""
        headers: dict[str, Any] = self.document["headers"]
        return headers


def task_key(task_id: str) -> str:
    """What the service knows a task by: its id, or a digest if that has other characters than names have."""
    return task_id if _NAME.fullmatch(task_id) else f"x-{hashlib.sha256(task_id.encode()).hexdigest()[:40]}"


class Recorder:
    """A producer for one message, which is handed over; what cannot be handed over may be published once more."""

    def __init__(self, app: Celery, behind: Producer, exchange_type: str | None, keep: Callable[[Captured], None]) -> None:
        self._app, self._behind, self._exchange_type, self._keep = app, behind, exchange_type, keep
        self._kept = False

    @property
    def connection(self) -> Any:
        """Of the producer behind; nothing opens it but what is published there."""
        return self._behind.connection

    def revive(self, channel: Any) -> None:
        """Nothing of ours breaks with a connection."""

    def publish(self, body: Any, **options: Any) -> Any:
        """As a producer."""
        if self._kept:
            return self._behind.publish(body, **options)
        self._keep(captured(self._app, body, self._exchange_type, **options))
        self._kept = True
        return None


def captured(
    app: Celery,
    body: Any,
    exchange_type: str | None,
    *,
    headers: dict[str, Any],
    exchange: Exchange | str | None,
    routing_key: str | None,
    serializer: str | None = None,
    compression: str | None = None,
    delivery_mode: int | str | None = None,
    declare: Iterable[Any] | None = None,
    **properties: Any,
) -> Captured:
    """What a producer would have done with this, short of sending it."""
    if "id" not in headers:
        raise ImproperlyConfigured("parked tasks need task_protocol 2")
    queues = [entity for entity in declare or () if isinstance(entity, Queue)]
    name = exchange.name if isinstance(exchange, Exchange) else exchange or ""
    not_before, expires = _time(app, headers.get("eta")), _time(app, headers.get("expires"))
    headers = {field: value for field, value in headers.items() if field != SENT} | {"eta": None}
    made: tuple[str, str, str | bytes] = dumps(body, serializer=serializer)
    content_type, content_encoding, text = made
    if compression:
        text, headers["compression"] = compress(text, compression)
    lasting = {field: value for field, value in properties.items() if field not in OF_THE_SENDING and value is not None}
    document = {
        "id": headers["id"],
        "body": base64.b64encode(text.encode(content_encoding) if isinstance(text, str) else text).decode(),
        "content_type": content_type,
        "content_encoding": content_encoding,
        "headers": headers,
        "properties": lasting | {"delivery_mode": maybe_delivery_mode(delivery_mode)},
        "exchange": name,
        "exchange_type": exchange_type or _type(name, exchange, queues),
        "routing_key": _undelayed(name, routing_key or ""),
        "queues": [_queue(queue) for queue in queues],
    }
    return Captured(headers["id"], document, body, not_before, expires)


def _time(app: Celery, said: str | datetime | None) -> datetime | None:
    """A time of a header, read as a worker reads it."""
    if not said:
        return None
    time = maybe_iso8601(said)
    return maybe_make_aware(time, app.timezone) if time else None


def remaining_s(captured: Captured, now: datetime) -> int | None:
    """How long it may wait in the queue once it is in it; None is for ever."""
    if captured.expires is None:
        return None
    enters = max(now, captured.not_before or now)
    return max(1, -((enters - captured.expires) // timedelta(seconds=1)))


def _type(name: str, exchange: Exchange | str | None, queues: list[Queue]) -> str:
    known = [exchange, *(queue.exchange for queue in queues)]
    return next((str(one.type) for one in known if isinstance(one, Exchange) and one.name == name), "direct")


def _undelayed(exchange: str, routing_key: str) -> str:
    """It is published when its time has come, so on its way through exchanges that delay it nothing may hold it up."""
    if not DELAYING.fullmatch(exchange):
        return routing_key
    return UNDELAYED + routing_key.split(".", 28)[-1]


def _queue(queue: Queue) -> dict[str, Any]:
    """What it takes to declare it; one that is bound to several exchanges is left to its consumers to bind."""
    exchange: Exchange | None = queue.exchange
    declared = {field: getattr(queue, field) for field in (*_QUEUE, *_LENGTHS)} | {
        "no_declare": bool(getattr(queue, "no_declare", False))
    }
    return declared | ({"exchange": {field: getattr(exchange, field) for field in _EXCHANGE}} if exchange else {})
