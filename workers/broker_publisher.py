"""The sending of finished messages to a broker: each is sent exactly as it was made, after its queues are declared.

`poolkeeper.celery` makes the document of a message where the task is called. It contains the serialiser, the signature and the
route of that app. So this module needs nothing else of the app, and never reads the body.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

from kombu import Connection, Exchange, Queue
from kombu.entity import maybe_delivery_mode
from kombu.exceptions import OperationalError
from kombu.transport import resolve_transport
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from app.celery_brokers import BrokerAddress
from app.domain.setting_kinds import InvalidSetting
from app.domain.tasks import TaskDispatch
from app.domain.validation_errors import field_errors

CONNECT_TIMEOUT_S = 5
"""Seconds that a broker may take for the first answer."""
RECONNECT_WITHIN_S = 1.0
"""The age in seconds up to which a broken connection is replaced at once, because it was only idle for too long."""


class InvalidMessage(Exception):  # noqa: N818 - a property of the document
    """The document is not a valid message for any broker."""


class BrokerUnavailable(Exception):  # noqa: N818 - a state of the world
    """The broker accepts no messages at present."""


class MessageRejected(Exception):  # noqa: N818 - an answer
    """The broker answers, but does not accept this message."""


def _decode_base64(text: object) -> bytes:
    if not isinstance(text, str):
        raise ValueError("must be base64")
    return base64.b64decode(text, validate=True)


class _MessagePart(BaseModel):
    """A part of the document. Unknown fields are ignored, because another version may have written it."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _EntityOptions(_MessagePart):
    """The common options of an exchange and a queue; null is the default of kombu."""

    durable: bool | None = None
    auto_delete: bool | None = None
    no_declare: bool | None = None


class _ExchangeOptions(_EntityOptions):
    name: str = ""
    type: str = "direct"
    arguments: dict[str, Any] | None = None
    delivery_mode: int | str | None = None


class _QueueOptions(_EntityOptions):
    name: str
    exchange: _ExchangeOptions | None = None
    routing_key: str | None = None
    exclusive: bool | None = None
    queue_arguments: dict[str, Any] | None = None
    binding_arguments: dict[str, Any] | None = None
    expires: float | None = None
    message_ttl: float | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    max_priority: int | None = None

    def to_kombu(self) -> Queue:
        """Return the queue as an object of kombu."""
        exchange = Exchange(**self.exchange.model_dump(exclude_none=True)) if self.exchange else None
        return Queue(**self.model_dump(exclude_none=True, exclude={"exchange"}), exchange=exchange)


class Message(_MessagePart):
    """A message that is ready to be sent."""

    body: Annotated[bytes, BeforeValidator(_decode_base64)]
    content_type: str
    content_encoding: str
    headers: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    exchange: str = ""
    routing_key: str
    queues: tuple[_QueueOptions, ...] = ()

    @classmethod
    def from_dispatch(cls, dispatch: TaskDispatch) -> Message:
        """Return the message of a task, with one more header for the grant."""
        try:
            message = cls.model_validate(dispatch.message)
        except ValidationError as wrong:
            (field, reason), *_ = field_errors(wrong)
            raise InvalidMessage(f"{field} {reason}") from None
        return message.model_copy(update={"headers": {**message.headers, "poolkeeper": _allocation_header(dispatch)}})


def _allocation_header(dispatch: TaskDispatch) -> dict[str, Any]:
    """Return the header for the worker: the fence of the task, or the reason why it will never run."""
    ended = dispatch.end
    return {
        "request": dispatch.request,
        "fence": dispatch.fence,
        "pool": dispatch.pool,
        "resources": dict(dispatch.resources),
        "lease_s": dispatch.lease_s,
        "resume": dispatch.resume,
        "checkpoint_reference": dispatch.reference,
        "tries": dispatch.attempts,
        "begun": dispatch.started,
        "ended": {"status": ended.status, "code": ended.code, "message": ended.message} if ended else None,
    }


class Publisher:
    """The sender to one broker, on one connection that is made on demand; for one thread."""

    def __init__(self, address: BrokerAddress, where: str) -> None:
        scheme = address.url.partition("://")[0]
        try:
            resolve_transport(scheme.partition("+")[0])  # redis+socket is redis
        except (KeyError, ImportError):
            raise InvalidSetting(f"{where}: url: there is no transport {scheme}, or what it needs is not installed") from None
        self._address, self._hosts = address, address.url.count(";") + 1
        self._connection = self._new_connection()
        self._channel: Any = None
        self._connection_errors: tuple[type[BaseException], ...] = (
            OSError,
            OperationalError,
            *self._connection.connection_errors,
        )
        self._declared: set[str] = set()

    def publish(self, message: Message) -> None:
        """Send a message, and return when the broker has it. Else raise BrokerUnavailable or MessageRejected, in one line
        without secrets."""
        was_open, started_s = self._channel is not None, time.monotonic()
        try:
            self._publish(message)
        except self._connection_errors as error:
            self.close()
            if not was_open or time.monotonic() - started_s > RECONNECT_WITHIN_S:
                raise BrokerUnavailable(self._redacted(error)) from None
            self.publish(message)
        except Exception as error:
            self.close()  # because some brokers close the channel when they refuse a message
            raise MessageRejected(self._redacted(error)) from None

    def close(self) -> None:
        """Drop the connection. The next message makes a new one."""
        with suppress(Exception):
            self._connection.release()
        self._connection, self._channel = self._new_connection(), None
        self._declared.clear()

    def _new_connection(self) -> Connection:
        address = self._address
        return Connection(
            address.url,
            transport_options=dict(address.options),
            ssl=dict(address.ssl) or False,
            connect_timeout=CONNECT_TIMEOUT_S,
        )

    def _publish(self, message: Message) -> None:
        if self._channel is None:
            self._channel = self._open_channel()
        self._declare(message.queues)
        properties = dict(message.properties)
        priority, expiration = properties.pop("priority", None), properties.get("expiration")
        properties["delivery_mode"] = maybe_delivery_mode(properties.get("delivery_mode"))
        if isinstance(expiration, (int, float)):  # seconds from the caller, milliseconds for the broker
            properties["expiration"] = str(int(expiration * 1000))
        arguments = (message.content_type, message.content_encoding, dict(message.headers), properties)
        prepared = self._channel.prepare_message(message.body, priority, *arguments)
        self._channel.basic_publish(prepared, exchange=message.exchange, routing_key=message.routing_key)

    def _open_channel(self) -> Any:
        retry_policy: dict[str, Any] = {"max_retries": self._hosts - 1, "interval_start": 0, "interval_step": 0}
        self._connection.ensure_connection(reraise_as_library_errors=False, **retry_policy)
        return self._connection.channel()

    def _declare(self, queues: Sequence[_QueueOptions]) -> None:
        for queue in queues:
            declaration = queue.model_dump_json()
            if (
                declaration not in self._declared and not queue.exclusive
            ):  # an exclusive queue can only be declared by its own connection
                queue.to_kombu()(self._channel).declare()
                self._declared.add(declaration)

    def _redacted(self, error: BaseException) -> str:
        """Return the error as one line without the secret parts of the URL."""
        text = " ".join(f"{type(error).__name__}: {error}".split())
        for secret in _secrets(self._address, self._connection):
            text = text.replace(secret, "***")
        return text[:300]


def _secrets(address: BrokerAddress, connection: Connection) -> list[str]:
    candidates = [address.url, connection.password, *_passwords(address.options)]
    return [text for text in candidates if isinstance(text, str) and text]


def _passwords(options: Mapping[str, Any]) -> list[str]:
    passwords = []
    for name, value in options.items():
        if isinstance(value, Mapping):
            passwords += _passwords(value)
        elif "password" in name and isinstance(value, str):
            passwords.append(value)
    return passwords
