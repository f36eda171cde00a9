"""Progress of a wait for a grant: one live line on a terminal, else a line on stderr at every change."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

import click

from poolkeeper import formatting
from poolkeeper.cli.confirm import is_terminal
from poolkeeper.cli.error_output import print_message
from poolkeeper.cli.exit_codes import ExitCode
from poolkeeper.cli.options import path
from poolkeeper.waiters import FIRST_WAIT_S

if TYPE_CHECKING:
    from poolkeeper import Client

LIVE_POLL_S = 3.0
"""The seconds that one poll waits if there is a live line."""
POLL_S = 10.0
LONGEST_OUTAGE_S = 120.0
"""The seconds without an answer after which the wait ends with an error."""


def submit_and_wait(client: Client, body: Mapping[str, Any], key: str, timeout_s: int | None) -> Mapping[str, Any]:
    """Submit a request. Return it when it is no longer queued, or when the time is up. Ctrl-C leaves it queued."""
    began_s, wait_s = time.monotonic(), FIRST_WAIT_S if timeout_s is None else min(FIRST_WAIT_S, timeout_s)
    try:
        request: Mapping[str, Any] = client.submit_document(body, key, wait_s)
    except KeyboardInterrupt:
        _stop_waiting(client.submit_document(body, key))
    return wait_for(client, request, timeout_s, began_s) if request["status"] == "queued" else request


def wait_for(
    client: Client, request: Mapping[str, Any], timeout_s: int | None, began_s: float | None = None
) -> Mapping[str, Any]:
    """Return the request when it is no longer queued, or when the time is up. Ctrl-C leaves it queued.

    `began_s` is the beginning of the wait; None is now.
    """
    line = _ProgressLine()
    try:
        request = _poll_until(client, request, timeout_s, line, time.monotonic() if began_s is None else began_s)
    except KeyboardInterrupt:
        line.clear()
        _stop_waiting(request)
    finally:
        line.clear()
    if request["status"] == "queued":
        print_message(f"not granted within {formatting.duration(timeout_s)}; {_stays_queued(request)}")
    return request


def _stop_waiting(request: Mapping[str, Any]) -> NoReturn:
    """Print that the request stays queued after Ctrl-C, and exit."""
    print_message(f"no longer waiting; {_stays_queued(request)}")
    click.get_current_context().exit(ExitCode.INTERRUPTED)


def _stays_queued(request: Mapping[str, Any]) -> str:
    ttl = request.get("queue_ttl_s")
    until = f" (for {formatting.duration(ttl)} without a poll)" if ttl else ""
    return f"{request['id']} stays queued{until}. To cancel it: poolkeeper request cancel {request['id']}"


def _poll_until(
    client: Client, request: Mapping[str, Any], timeout_s: int | None, line: _ProgressLine, began_s: float
) -> Mapping[str, Any]:
    from poolkeeper.errors import TooManyRequests, Unavailable

    answered_s = time.monotonic()
    until_s = inf if timeout_s is None else began_s + timeout_s
    while request["status"] == "queued":
        line.show(request, time.monotonic() - began_s)
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            break
        try:
            request, pause_s = _poll(client, request["id"], min(line.poll_s, left_s))
            answered_s = time.monotonic()
        except (Unavailable, TooManyRequests) as error:
            if time.monotonic() - answered_s > LONGEST_OUTAGE_S:
                raise
            line.show_retry(str(error))
            pause_s = max(1.0, error.retry_after_s or 0.0)
        if request["status"] == "queued":
            time.sleep(max(0.0, min(pause_s, until_s - time.monotonic())))
    return request


def _poll(client: Client, request: str, wait_s: float) -> tuple[Mapping[str, Any], float]:
    """Return the request after one long poll, and the pause in seconds that the service asks for."""
    from poolkeeper.http_client import decode_json

    query = {"wait_s": round(wait_s, 3), "status": "queued"}
    response = client.send("GET", path("requests", request), query=query, timeout_s=wait_s + 10, tries=1)
    return decode_json(response), response.retry_after_s or 0.0


class _ProgressLine:
    """The line that shows the progress of the wait."""

    def __init__(self) -> None:
        self.is_live = is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"
        self.poll_s = LIVE_POLL_S if self.is_live else POLL_S
        self._last = ""
        self._is_drawn = False

    def show(self, request: Mapping[str, Any], waited_s: float) -> None:
        """Show the state of the request."""
        position = formatting.position(request)
        text = f"{request['id']} {request['status']}" + (f", position {position}" if position else "")
        if self.is_live:
            self._draw(f"{text}, for {formatting.duration(int(waited_s))}; Ctrl-C stops waiting")
        elif text != self._last:
            print_message(text)
        self._last = text

    def show_retry(self, error: str) -> None:
        """Show that a poll failed and is tried again."""
        if self.is_live:
            self._draw(f"{error}; trying again")
        elif error != self._last:
            print_message(f"{error}; trying again")
        self._last = error

    def clear(self) -> None:
        """Remove the line."""
        if self._is_drawn:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._is_drawn = False

    def _draw(self, line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        click.echo(f"\r\x1b[K{formatting.one_line(line)[:width]}", nl=False, err=True, color=True)
        self._is_drawn = True
