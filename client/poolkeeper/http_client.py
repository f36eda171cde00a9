"""Calls of the API: JSON to the server and back, again when that is safe, and refusals as exceptions.

Tried again, with pauses that double and vary, are: an answer of 429 or 503 (the pause it asks for is kept), a connection that
was cut or timed out, and no server. What could do harm when done twice is tried again only if it surely was not done:
the server was not reached, or said 429. Safe twice are GET, PUT, PATCH and DELETE, what has an `Idempotency-Key` (what the
server knows by one gets one here, if it was given none), and the actions below, which the server answers alike the second time.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from copy import copy
from typing import Any, Self
from urllib.parse import urlencode

from poolkeeper import config, event_stream
from poolkeeper.config import PREFIX
from poolkeeper.errors import NotFound, PoolkeeperError, Refused, refusal
from poolkeeper.failures import is_lost, may_pass, surely_not_done, unanswered
from poolkeeper.transport import Answer, Transport

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
LONGEST_WISH_S = 60.0
"""The longest Retry-After that is waited for; beyond it, the refusal is raised at once."""

KEY = "Idempotency-Key"
KEYED_POSTS = frozenset({"/pools", "/requests", "/requests/batch", "/tasks"})
"""What the server does once for each key."""
READING = frozenset({"GET", "HEAD"})
READING_POSTS = ("/plan", "/dry-run")
REPEATABLE_POSTS = ("/start", "/heard", "/heartbeat", "/release", "/checkpoint", "/cancel", *READING_POSTS)


class _Hidden(str):
    """Text that a traceback with the values of variables, such as pytest's, does not show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class Calls:
    """Everything the API has, by method and path; threads may share one."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        workspace: str | None = None,
        *,
        timeout_s: float = 10.0,
        tries: int = 5,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.configuration = config.read(url, token, workspace)
        self.url, self.workspace = self.configuration.url, self.configuration.workspace
        self.timeout_s, self.tries, self._sleep = timeout_s, max(1, tries), sleep
        self.dated: str | None = None
        """The `Date` of the last answer: what the server's clock said."""
        self._transport = Transport(self.url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes idle connections; the client stays usable."""
        self._transport.close()

    def twin(self, *, timeout_s: float | None = None, tries: int | None = None) -> Self:
        """A client of the same server, in the same name, that shares nothing with this one."""
        other = copy(self)
        other._transport = Transport(self.url)
        other.timeout_s, other.tries = timeout_s or self.timeout_s, tries or self.tries
        return other

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """The decoded answer (None if it is empty); Refused, or one of its kinds, if there is none or it is a refusal.

        `timeout_s` is for one try. A deletion that had to be repeated and then finds nothing is done.
        """
        return decoded(self.answer(method, path, query=query, body=body, headers=headers, timeout_s=timeout_s))

    def items(self, path: str, *, query: Mapping[str, Any] | None = None, page: int = 200) -> Iterator[dict[str, Any]]:
        """The rows of a list, page after page."""
        cursor = None
        while True:
            answer = self.call("GET", path, query={**(query or {}), "limit": page, "cursor": cursor})
            if not isinstance(answer, dict) or not isinstance(answer.get("items"), list):
                raise PoolkeeperError(f"{path} is no list")
            yield from answer["items"]
            cursor = answer.get("next_cursor")
            if cursor is None:
                return

    def events(
        self, *, after: str | None = None, pool: str | None = None, component: str | None = None, request: str | None = None
    ) -> Generator[dict[str, Any], None, None]:
        """Events as they happen, without end: from now on, or after the event of this id ("0": from the beginning).

        A stream that breaks is taken up again after the last event, however long that takes; only a first connection that
        cannot be had raises, and a refusal. Closing the generator ends the connection.
        """
        query = {"pool": pool, "component": component, "request": request}
        return event_stream.events(self._open_stream, query, after, self._sleep)

    def answer(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        tries: int | None = None,
    ) -> Answer:
        """As `call`, with the status and the headers, and with as many tries as wanted."""
        sent = None if body is None else json.dumps(body, allow_nan=False).encode()
        target, all_headers = PREFIX + path + _query(query), self._headers(headers, sent)
        if method == "POST" and path in KEYED_POSTS:
            all_headers.setdefault(KEY, new_key())
        repeatable = method != "POST" or KEY in all_headers or path.endswith(REPEATABLE_POSTS)
        changes = method not in READING and not path.endswith(READING_POSTS)
        earlier: list[Refused] = []
        while True:
            found = self._try(method, target, sent, all_headers, timeout_s or self.timeout_s, repeatable)
            if isinstance(found, Answer):
                return found
            if changes:
                found.repeated = not all(map(surely_not_done, earlier))
                found.lost = any(map(is_lost, [*earlier, found]))
            if method == "DELETE" and isinstance(found, NotFound) and found.repeated:
                return Answer(204, {}, b"")
            earlier.append(found)
            again = may_pass(found) and (repeatable or surely_not_done(found))
            if not again or len(earlier) >= (tries or self.tries) or (found.retry_after_s or 0) > LONGEST_WISH_S:
                raise found
            self._sleep(pause_s(len(earlier), found.retry_after_s))

    def _try(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float, repeatable: bool
    ) -> Answer | Refused:
        """The answer, or what came instead."""
        from http.client import HTTPException

        try:
            answer = self._transport.exchange(method, target, body, headers, timeout_s, repeatable=repeatable)
        except (OSError, HTTPException) as error:
            return unanswered(self.url, error)
        self.dated = answer.headers.get("date")
        return answer if answer.status < 300 else _refusal(answer)

    def _headers(self, given: Mapping[str, str] | None, body: bytes | None) -> dict[str, str]:
        headers = {"Accept": "application/json", "Poolkeeper-Workspace": self.workspace}
        if self.configuration.token:
            headers["Authorization"] = _Hidden(f"Bearer {self.configuration.token}")
        if body is not None:
            headers["Content-Type"] = "application/json"
        return headers | {KEY if name.lower() == KEY.lower() else name: text for name, text in (given or {}).items()}

    def _open_stream(self, query: Mapping[str, Any], last_id: str | None) -> event_stream.Source:
        """A connection of its own, on which events come; Refused or Unavailable if there is none."""
        from http.client import HTTPException

        headers = self._headers({"Accept": "text/event-stream", "Cache-Control": "no-store"}, None)
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        try:
            connection = self._transport.open(event_stream.SILENCE_S)
            try:
                response = self._transport.send(connection, "GET", f"{PREFIX}/events{_query(query)}", None, headers)
                if response.status >= 300:
                    said = {name.lower(): text for name, text in response.getheaders()}
                    raise _refusal(Answer(response.status, said, response.read()))
            except BaseException:
                connection.close()
                raise
        except (OSError, HTTPException) as error:
            raise unanswered(self.url, error) from error
        return event_stream.Source(response, connection)


def new_key() -> str:
    """An idempotency key that nobody else has."""
    return os.urandom(16).hex()


def pause_s(tried: int, retry_after_s: float | None = None) -> float:
    """How long to wait after so many tries: doubling, at random within a half, on top of what the server asks for."""
    from random import uniform

    longest: float = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(tried - 1, 10))
    return (retry_after_s or 0.0) + longest * uniform(0.5, 1.0)


def decoded(answer: Answer) -> Any:
    """The JSON of an answer; None if it is empty."""
    if not answer.body:
        return None
    try:
        return json.loads(answer.body)
    except ValueError as error:
        raise PoolkeeperError(f"the answer is not JSON, so this is no Poolkeeper: {answer.body[:80]!r}") from error


def _refusal(answer: Answer) -> Refused:
    return refusal(answer.status, _problem(answer), answer.retry_after_s)


def _problem(answer: Answer) -> dict[str, Any]:
    try:
        found = json.loads(answer.body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _query(query: Mapping[str, Any] | None) -> str:
    """What is None is left out; a list repeats its name."""
    pairs = [(name, _text(each)) for name, value in (query or {}).items() for each in _each(value) if each is not None]
    return f"?{urlencode(pairs)}" if pairs else ""


def _each(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
