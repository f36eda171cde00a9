"""The consumer of a worker: any error of its broker is a lost connection, but a request to end is not."""

from __future__ import annotations

from typing import Any

import pytest
from celery.exceptions import WorkerShutdown
from celery.worker.consumer import Consumer

from workers import consumer
from workers.consumer import ReconnectingConsumer


class Parent:
    """A consumer with one kind of connection error."""

    connection_errors = (OSError,)


def start(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> list[float]:
    """Start the steps, of which one raises this error; return the pauses."""
    pauses: list[float] = []

    def fail(self: Any, parent: Any) -> None:
        raise error

    monkeypatch.setattr(Consumer.Blueprint, "start", fail)
    monkeypatch.setattr("workers.consumer.time.sleep", pauses.append)
    blueprint: Any = object.__new__(ReconnectingConsumer.Blueprint)
    with pytest.raises(type(error) if isinstance(error, (OSError, SystemExit)) else ConnectionError, match=str(error.args[0])):
        blueprint.start(Parent())
    return pauses


@pytest.mark.parametrize(
    "error", [KeyError(39), AttributeError("'NoneType' object has no attribute 'hostname'"), ValueError("a closed file")]
)
def test_an_error_of_a_closed_connection_is_a_lost_connection(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    assert start(monkeypatch, error) == [consumer.RETRY_S]


@pytest.mark.parametrize("error", [TimeoutError("no answer"), WorkerShutdown(0)])
def test_a_connection_error_and_a_request_to_end_stay_what_they_are(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    assert start(monkeypatch, error) == []
