"""Events of the server (text/event-stream). A broken stream is resumed after its last event.

The server sends a line at least every ten seconds. After a silence three times as long, the stream counts as broken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poolkeeper.backoff import pause_s
from poolkeeper.errors import TooManyRequests, Unavailable
from poolkeeper.failures import is_retryable

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

SILENCE_S = 30.0
FIRST_TRIES = 5
LONGEST_STREAM_PAUSE_S = 10.0


@dataclass(frozen=True, slots=True)
class EventStream:
    """An open stream."""

    response: HTTPResponse
    connection: HTTPConnection

    def close(self) -> None:
        """Close the connection."""
        self.response.close()
        self.connection.close()


class EventParser:
    """A parser of lines into events. `last_id` is the event to resume after, `retry_s` the pause that the server asks for."""

    def __init__(self, last_id: str | None) -> None:
        self.last_id, self.retry_s = last_id, 0.0
        self._id = last_id
        self._data: list[str] = []

    def feed(self, line: str) -> dict[str, Any] | None:
        """Return the event that this line completes, if any."""
        if not line:
            return self._complete()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._id = value or None
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry_s = min(LONGEST_STREAM_PAUSE_S, int(value) / 1000)
        return None

    def _complete(self) -> dict[str, Any] | None:
        data, self._data, self.last_id = self._data, [], self._id
        return json.loads("\n".join(data)) if data else None


StreamOpener = Callable[[Mapping[str, Any], str | None], EventStream]


def iter_events(
    open_stream: StreamOpener, query: Mapping[str, Any], after: str | None, sleep: Callable[[float], object]
) -> Generator[dict[str, Any], None, None]:
    """Yield every event after `last_id`, without end."""
    from http.client import HTTPException

    last_id, failures, was_connected = after, 0, False
    while True:
        try:
            stream = open_stream({**query, "after": last_id}, last_id)
        except (Unavailable, TooManyRequests) as error:
            failures += 1
            if not was_connected and (failures >= FIRST_TRIES or not is_retryable(error)):
                raise
            sleep(_pause_s(failures, error.retry_after_s))
            continue
        parser, was_connected = EventParser(last_id), True
        try:
            for line in stream.response:
                if (event := parser.feed(line.decode().rstrip("\r\n"))) is not None:
                    failures = 0
                    yield event
        except (OSError, HTTPException, ValueError):
            pass  # cut, silent, or half a line: resume after the last whole event
        finally:
            last_id = parser.last_id
            stream.close()
        failures += 1
        sleep(_pause_s(failures, parser.retry_s))


def _pause_s(failures: int, retry_after_s: float | None) -> float:
    return min(LONGEST_STREAM_PAUSE_S, pause_s(failures, retry_after_s))
