"""Calls of the API: JSON to the server and back, with retries if they are safe, and exceptions for refusals.

A call is retried, with pauses that double and vary, after an answer of 429 or 503 (with the pause it asks for), after a
connection that was cut or timed out, and without a server. A call that must not happen twice is retried only if it certainly
did not happen: the server was not reached, or answered 429. After 401 and 403 the token is read again; if it is another one,
the call is repeated at once. Safe to repeat are GET, PUT, PATCH and DELETE, calls with an `Idempotency-Key` (the client adds
one to the posts that take it), and the actions below, which get the same answer the second time.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

from poolkeeper import config, event_stream
from poolkeeper.backoff import pause_s
from poolkeeper.config import PREFIX
from poolkeeper.errors import AccessDenied, ApiError, NotFound, PoolkeeperError, api_error
from poolkeeper.failures import is_answer_lost, is_definitely_not_applied, is_retryable, unavailable_from
from poolkeeper.transport import Response, Transport

LONGEST_RETRY_AFTER_S = 60.0
"""The longest Retry-After in seconds for which the client waits; after a longer one it raises the refusal at once."""

IDEMPOTENCY_HEADER = "Idempotency-Key"
IDEMPOTENT_POSTS = frozenset({"/pools", "/requests", "/requests/batch", "/tasks"})
"""Posts that the server executes once for each idempotency key."""
READ_METHODS = frozenset({"GET", "HEAD"})
READ_ONLY_POSTS = ("/plan", "/dry-run")
REPEATABLE_POSTS = ("/start", "/heard", "/heartbeat", "/release", "/checkpoint", "/cancel", *READ_ONLY_POSTS)


class _SecretText(str):
    """A text whose value no traceback shows, not even one with the values of variables, such as pytest's."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class HttpClient:
    """A client for every call of the API, by method and path. Threads may share one."""

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
        self.rereads_token = not token
        """False if the token is an argument: a refused one is then not replaced by that of the environment or a file."""
        self.url, self.workspace = self.configuration.url, self.configuration.workspace
        self.timeout_s, self.tries, self._sleep = timeout_s, max(1, tries), sleep
        self.server_date: str | None = None
        """The header `Date` of the last answer: the time of the server's clock."""
        self._transport = Transport(self.url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close idle connections; the client stays usable."""
        self._transport.close()

    def clone(self, *, timeout_s: float | None = None, tries: int | None = None) -> Self:
        """Return a client with the same configuration and connections of its own."""
        clone = copy(self)
        clone._transport = Transport(self.url)
        clone.timeout_s, clone.tries = timeout_s or self.timeout_s, tries or self.tries
        return clone

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
        """Return the decoded body of the answer; None if it is empty. Raise ApiError for an error or a missing answer.

        `timeout_s` is for one try. A repeated deletion that finds nothing counts as done.
        """
        return decode_json(self.send(method, path, query=query, body=body, headers=headers, timeout_s=timeout_s))

    def submit_document(self, body: Mapping[str, Any], idempotency_key: str, wait_s: float = 0) -> Any:
        """Submit a request under this idempotency key. Return it when it is no longer queued, or after `wait_s`."""
        headers, query = {IDEMPOTENCY_HEADER: idempotency_key}, {"wait_s": round(wait_s, 3)} if wait_s > 0 else None
        timeout_s = self.timeout_s + max(0.0, wait_s)
        return self.call("POST", "/requests", query=query, body=dict(body), headers=headers, timeout_s=timeout_s)

    def items(self, path: str, *, query: Mapping[str, Any] | None = None, page: int = 200) -> Iterator[dict[str, Any]]:
        """Yield the rows of a list, page after page."""
        cursor = None
        while True:
            page_body = self.call("GET", path, query={**(query or {}), "limit": page, "cursor": cursor})
            if not isinstance(page_body, dict) or not isinstance(page_body.get("items"), list):
                raise PoolkeeperError(f"the answer to {path} is no list")
            yield from page_body["items"]
            cursor = page_body.get("next_cursor")
            if cursor is None:
                return

    def events(
        self, *, after: str | None = None, pool: str | None = None, component: str | None = None, request: str | None = None
    ) -> Generator[dict[str, Any], None, None]:
        """Yield events as they happen, without end: new ones, or all after the event of this id ("0": from the beginning).

        A broken stream is resumed after its last event, after any time. Only the first connection raises an error if it fails
        or is refused. Closing the generator ends the connection.
        """
        query = {"pool": pool, "component": component, "request": request}
        return event_stream.iter_events(self._open_stream, query, after, self._sleep)

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        tries: int | None = None,
    ) -> Response:
        """Make a call like `call`, but return the response with status and headers; `tries` replaces the client's own."""
        body_bytes = None if body is None else json.dumps(body, allow_nan=False).encode()
        target, all_headers = PREFIX + path + _query(query), self._headers(headers, body_bytes)
        if method == "POST" and path in IDEMPOTENT_POSTS:
            all_headers.setdefault(IDEMPOTENCY_HEADER, new_key())
        repeatable = method != "POST" or IDEMPOTENCY_HEADER in all_headers or path.endswith(REPEATABLE_POSTS)
        is_write = method not in READ_METHODS and not path.endswith(READ_ONLY_POSTS)
        errors: list[ApiError] = []
        while True:
            result = self._send_once(method, target, body_bytes, all_headers, timeout_s or self.timeout_s, repeatable)
            if isinstance(result, Response):
                return result
            if is_write:
                result.repeated = not all(map(is_definitely_not_applied, errors))
                result.answer_lost = any(map(is_answer_lost, [*errors, result]))
            if method == "DELETE" and isinstance(result, NotFound) and result.repeated:
                return Response(204, {}, b"")
            if isinstance(result, AccessDenied) and self._replace_token(all_headers.get("Authorization")):
                all_headers |= self._headers(headers, body_bytes)
                continue
            errors.append(result)
            may_retry = is_retryable(result) and (repeatable or is_definitely_not_applied(result))
            if not may_retry or len(errors) >= (tries or self.tries) or (result.retry_after_s or 0) > LONGEST_RETRY_AFTER_S:
                raise result
            self._sleep(pause_s(len(errors), result.retry_after_s))

    def _replace_token(self, refused: str | None) -> bool:
        """Read the token again after a refusal. Return True if it differs from the one in the refused header."""
        if not self.rereads_token:
            return False
        try:
            token = config.read(self.url, None, self.workspace).token
        except PoolkeeperError:
            return False
        if not token or f"Bearer {token}" == refused:
            return False
        self.configuration = replace(self.configuration, token=token)
        return True

    def _send_once(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float, repeatable: bool
    ) -> Response | ApiError:
        """Send one try. Return the response or the error."""
        from http.client import HTTPException

        try:
            response = self._transport.exchange(method, target, body, headers, timeout_s, repeatable=repeatable)
        except (OSError, HTTPException) as error:
            return unavailable_from(self.url, error)
        self.server_date = response.headers.get("date")
        return response if response.status < 300 else _to_error(response)

    def _headers(self, extra: Mapping[str, str] | None, body: bytes | None) -> dict[str, str]:
        headers = {"Accept": "application/json", "Poolkeeper-Workspace": self.workspace}
        if self.configuration.token:
            headers["Authorization"] = _SecretText(f"Bearer {self.configuration.token}")
        if body is not None:
            headers["Content-Type"] = "application/json"
        return headers | {
            IDEMPOTENCY_HEADER if name.lower() == IDEMPOTENCY_HEADER.lower() else name: text
            for name, text in (extra or {}).items()
        }

    def _open_stream(self, query: Mapping[str, Any], last_id: str | None) -> event_stream.EventStream:
        """Open a connection for events. Raise an ApiError if there is none."""
        from http.client import HTTPException

        headers = self._headers({"Accept": "text/event-stream", "Cache-Control": "no-store"}, None)
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        try:
            connection = self._transport.open(event_stream.SILENCE_S)
            try:
                response = self._transport.send(connection, "GET", f"{PREFIX}/events{_query(query)}", None, headers)
                if response.status >= 300:
                    response_headers = {name.lower(): text for name, text in response.getheaders()}
                    raise _to_error(Response(response.status, response_headers, response.read()))
            except BaseException:
                connection.close()
                raise
        except (OSError, HTTPException) as error:
            raise unavailable_from(self.url, error) from error
        return event_stream.EventStream(response, connection)


def new_key() -> str:
    """Return a new, unique idempotency key."""
    return os.urandom(16).hex()


def decode_json(response: Response) -> Any:
    """Return the JSON of a response; None if its body is empty."""
    if not response.body:
        return None
    try:
        return json.loads(response.body)
    except ValueError as error:
        raise PoolkeeperError(f"the answer is not JSON, so this is no Poolkeeper: {response.body[:80]!r}") from error


def _to_error(response: Response) -> ApiError:
    problem = _problem(response)
    if (300 <= response.status < 400) and (origin := _origin(response.headers.get("location", ""))):
        problem = {"detail": f"the server redirects every call to {origin}: use that as the URL"}
    return api_error(response.status, problem, response.retry_after_s)


def _origin(url: str) -> str | None:
    """Return scheme and host of a URL, or None if it has none."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else None


def _problem(response: Response) -> dict[str, Any]:
    try:
        problem = json.loads(response.body)
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _query(query: Mapping[str, Any] | None) -> str:
    """Return the query string: None is left out, a list repeats its name."""
    pairs = [(name, _query_text(each)) for name, value in (query or {}).items() for each in _as_list(value) if each is not None]
    return f"?{urlencode(pairs)}" if pairs else ""


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]


def _query_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
