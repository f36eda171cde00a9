"""The message of a task as Celery publishes it, recorded as a document that is published later.

`RecordingProducer` replaces Celery's producer. It records the first message, and passes each later one (the event that the task
was sent) to the original producer.
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

GRANT_HEADER = "poolkeeper"
"""The header that tells a worker the grant of a message."""

DELAYING_EXCHANGE = re.compile(r"celery_delayed_\d+")
"""The exchanges through which Celery delays a message in RabbitMQ."""
UNDELAYED_PREFIX = ".".join("0" * 28) + "."

PUBLICATION_PROPERTIES = ("expiration", "redelivered", "retry", "retry_policy", "timeout", "confirm_timeout")
"""Properties that count for one publication only. The worker reads the expiry of a task from the headers."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_DECLARED = ("name", "durable", "auto_delete", "no_declare")
_QUEUE = (*_DECLARED, "routing_key", "exclusive", "queue_arguments", "binding_arguments", "expires", "message_ttl")
_LENGTHS = ("max_length", "max_length_bytes", "max_priority")
_EXCHANGE = (*_DECLARED, "type", "arguments", "delivery_mode")


@dataclass(frozen=True, slots=True)
class CapturedMessage:
    """A recorded message, and the first and the last time at which it may be published."""

    id: str
    document: dict[str, Any]
    body: Any
    not_before: datetime | None
    expires: datetime | None

    @property
    def headers(self) -> dict[str, Any]:
        """Return Celery's headers of the message."""
        headers: dict[str, Any] = self.document["headers"]
        return headers


def task_key(task_id: str) -> str:
    """Return the id of a task in the service: its own id, or a digest if the id has characters that names cannot have."""
    return task_id if _NAME.fullmatch(task_id) else f"x-{hashlib.sha256(task_id.encode()).hexdigest()[:40]}"


class RecordingProducer:
    """A producer that records the first message. If recording fails, the next try is recorded."""

    def __init__(
        self, app: Celery, producer: Producer, exchange_type: str | None, on_message: Callable[[CapturedMessage], None]
    ) -> None:
        self._app, self._producer, self._exchange_type, self._on_message = app, producer, exchange_type, on_message
        self._is_captured = False

    @property
    def connection(self) -> Any:
        """Return the connection of the original producer; only a message that is published there opens it."""
        return self._producer.connection

    def revive(self, channel: Any) -> None:
        """Do nothing: no state here depends on a connection."""

    def publish(self, body: Any, **properties: Any) -> Any:
        """Record the first message; publish later ones."""
        if self._is_captured:
            return self._producer.publish(body, **properties)
        self._on_message(capture(self._app, body, self._exchange_type, **properties))
        self._is_captured = True
        return None


def capture(
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
) -> CapturedMessage:
    """Return the message that a producer publishes for these arguments."""
    if "id" not in headers:
        raise ImproperlyConfigured("parked tasks need task_protocol 2")
    queues = [entity for entity in declare or () if isinstance(entity, Queue)]
    name = exchange.name if isinstance(exchange, Exchange) else exchange or ""
    not_before, expires = _parse_time(app, headers.get("eta")), _parse_time(app, headers.get("expires"))
    headers = {field: value for field, value in headers.items() if field != GRANT_HEADER} | {"eta": None}
    serialized: tuple[str, str, str | bytes] = dumps(body, serializer=serializer)
    content_type, content_encoding, text = serialized
    if compression:
        text, headers["compression"] = compress(text, compression)
    kept_properties = {
        field: value for field, value in properties.items() if field not in PUBLICATION_PROPERTIES and value is not None
    }
    document = {
        "id": headers["id"],
        "body": base64.b64encode(text.encode(content_encoding) if isinstance(text, str) else text).decode(),
        "content_type": content_type,
        "content_encoding": content_encoding,
        "headers": headers,
        "properties": kept_properties | {"delivery_mode": maybe_delivery_mode(delivery_mode)},
        "exchange": name,
        "exchange_type": exchange_type or _exchange_type(name, exchange, queues),
        "routing_key": _without_delay(name, routing_key or ""),
        "queues": [_queue_document(queue) for queue in queues],
    }
    return CapturedMessage(headers["id"], document, body, not_before, expires)


def _parse_time(app: Celery, value: str | datetime | None) -> datetime | None:
    """Return the time in a header, read like a worker does."""
    if not value:
        return None
    time = maybe_iso8601(value)
    return maybe_make_aware(time, app.timezone) if time else None


def remaining_s(message: CapturedMessage, now: datetime) -> int | None:
    """Return the seconds that the request may be queued before the task expires; None if it never expires."""
    if message.expires is None:
        return None
    enters = max(now, message.not_before or now)
    return max(1, -((enters - message.expires) // timedelta(seconds=1)))


def _exchange_type(name: str, exchange: Exchange | str | None, queues: list[Queue]) -> str:
    exchanges = [exchange, *(queue.exchange for queue in queues)]
    return next(
        (str(candidate.type) for candidate in exchanges if isinstance(candidate, Exchange) and candidate.name == name), "direct"
    )


def _without_delay(exchange: str, routing_key: str) -> str:
    """Return the routing key without its delay. Poolkeeper delays the message instead."""
    if not DELAYING_EXCHANGE.fullmatch(exchange):
        return routing_key
    return UNDELAYED_PREFIX + routing_key.split(".", 28)[-1]


def _queue_document(queue: Queue) -> dict[str, Any]:
    """Return the document that declares the queue. If the queue is bound to several exchanges, its consumers bind it."""
    exchange: Exchange | None = queue.exchange
    document = {field: getattr(queue, field) for field in (*_QUEUE, *_LENGTHS)} | {
        "no_declare": bool(getattr(queue, "no_declare", False))
    }
    return document | ({"exchange": {field: getattr(exchange, field) for field in _EXCHANGE}} if exchange else {})
