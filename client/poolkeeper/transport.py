"""Bytes to the server and back: keep-alive connections, each used by one call at a time.

A call takes an idle connection or opens one. There is no lock: no thread waits for another, and a fork finds no lock held. A
connection belongs to the process that opened it. A connection that the server has closed meanwhile is replaced at once.
Connecting and sending are two steps, so that a failure shows whether anything was sent: after ConnectError nothing was sent.
"""

from __future__ import annotations

import os
import re
import select
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from poolkeeper.errors import InvalidUrl

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

MAX_IDLE = 16
"""The most idle connections that are kept; more are closed."""


PAGE_PATHS = re.compile(r"/(?:docs|healthz|readyz|metrics)/?$|/api/v1/")
"""Paths of pages and calls below the URL of a server, which are no part of the URL."""


class ConnectError(OSError):
    """A failed connection: nothing was sent. The reason is the cause of this error."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response of any status; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def retry_after_s(self) -> float | None:
        """Return the header Retry-After in seconds; None if there is none, or if it is a date."""
        text = self.headers.get("retry-after", "").strip()
        return float(text) if text.isascii() and text.isdigit() else None


class Transport:
    """The connections to one server."""

    def __init__(self, url: str) -> None:
        parts = _parse_url(url)
        self._secure, self._host, self._port, self._prefix = parts
        self._idle: deque[tuple[int, HTTPConnection]] = deque()

    def exchange(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float, *, repeatable: bool
    ) -> Response:
        """Send one call. Raise OSError or HTTPException if there is no answer. A call that is not repeatable is sent at most
        once.
        """
        while True:
            connection = self._take_idle()
            fresh = connection is None
            connection = connection or self.open(timeout_s)
            try:
                return self._exchange_on(connection, method, target, body, headers, timeout_s)
            except ConnectionError:
                if fresh or not repeatable:
                    raise

    def open(self, timeout_s: float) -> HTTPConnection:
        """Open a connection that the caller owns. Raise ConnectError if it fails."""
        from http.client import HTTPConnection, HTTPSConnection

        connection = (HTTPSConnection if self._secure else HTTPConnection)(self._host, self._port, timeout=timeout_s)
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:  # an impossible host name raises UnicodeError
            connection.close()
            raise ConnectError(str(error)) from error
        return connection

    def send(
        self, connection: HTTPConnection, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> HTTPResponse:
        """Send the call, and return as soon as its response begins."""
        try:
            connection.request(method, self._prefix + target, body, dict(headers))
        except (BrokenPipeError, ConnectionResetError):
            if connection.sock is None:
                raise
            # A server that refuses a large body answers before it has read it all.
        return connection.getresponse()

    def close(self) -> None:
        """Close the idle connections; the next call opens a new one."""
        while self._idle:
            self._idle.pop()[1].close()

    def _exchange_on(
        self,
        connection: HTTPConnection,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> Response:
        try:
            connection.timeout = timeout_s
            if connection.sock is not None:
                connection.sock.settimeout(timeout_s)
            response = self.send(connection, method, target, body, headers)
            result = Response(response.status, {name.lower(): text for name, text in response.getheaders()}, response.read())
            response.close()  # else it is finalized at the next call, where Python drops a Ctrl-C
        except BaseException:  # also Ctrl-C: the rest of an answer may still come
            connection.close()
            raise
        self._put_idle(connection)
        return result

    def _take_idle(self) -> HTTPConnection | None:
        while True:
            try:
                owner, connection = self._idle.pop()
            except IndexError:
                return None
            if owner == os.getpid() and connection.sock is not None and not _has_input(connection.sock.fileno()):
                return connection
            connection.close()

    def _put_idle(self, connection: HTTPConnection) -> None:
        if len(self._idle) < MAX_IDLE and connection.sock is not None:  # None: http.client closed it, as the server does
            self._idle.append((os.getpid(), connection))
        else:
            connection.close()


def _has_input(file: int) -> bool:
    """True if an idle connection is readable, which means that it has ended."""
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([file], [], [], 0)[0])
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(0))


def _parse_url(url: str) -> tuple[bool, str, int | None, str]:
    if "://" not in url and not url.startswith(("http:", "https:")):
        raise InvalidUrl(f"{url!r} is not the URL of a server: http:// or https:// is missing")
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and not parts.query and not parts.fragment:
            if PAGE_PATHS.search(parts.path):
                raise InvalidUrl(f"{url!r} is not the URL of a server, but of a page of it: leave out {parts.path}")
            return parts.scheme == "https", parts.hostname, parts.port, parts.path.rstrip("/")
    except ValueError:
        pass
    raise InvalidUrl(f"{url!r} is not the URL of a server: http://host:port or https://host:port")
