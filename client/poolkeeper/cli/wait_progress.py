"""Waiting for a grant, in sight of a person: one live line on a terminal, else a line on stderr for every change."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any

import click

from poolkeeper import formatting
from poolkeeper.cli.confirm import is_terminal
from poolkeeper.cli.error_output import say
from poolkeeper.cli.exit_codes import Exit
from poolkeeper.cli.options import path

if TYPE_CHECKING:
    from poolkeeper import Client

LIVE_POLL_S = 3.0
"""How long one poll waits when somebody is looking at the line."""
POLL_S = 10.0
OUTAGE_S = 120.0
"""How long to go on without an answer."""


def wait_for(client: Client, request: Mapping[str, Any], timeout_s: int | None) -> Mapping[str, Any]:
    """The request when it is no longer queued, or as it stood when the time was up. Ctrl-C leaves it queued."""
    line = _Line()
    try:
        request = _poll_until(client, request, timeout_s, line)
    except KeyboardInterrupt:
        line.clear()
        say(f"no longer waiting; {_stays(request)}")
        click.get_current_context().exit(Exit.INTERRUPTED)
    finally:
        line.clear()
    if request["status"] == "queued":
        say(f"not granted within {formatting.duration(timeout_s)}; {_stays(request)}")
    return request


def _stays(request: Mapping[str, Any]) -> str:
    ttl = request.get("queue_ttl_s")
    until = f" (for {formatting.duration(ttl)}, unless somebody asks for it)" if ttl else ""
    return f"{request['id']} stays queued{until}. To take it out: poolkeeper request cancel {request['id']}"


def _poll_until(client: Client, request: Mapping[str, Any], timeout_s: int | None, line: _Line) -> Mapping[str, Any]:
    from poolkeeper.errors import TooManyRequests, Unavailable

    answered = began = time.monotonic()
    until = inf if timeout_s is None else began + timeout_s
    while request["status"] == "queued":
        line.show(request, time.monotonic() - began)
        left = until - time.monotonic()
        if left <= 0:
            break
        try:
            request, pause_s = _poll(client, request["id"], min(line.poll_s, left))
            answered = time.monotonic()
        except (Unavailable, TooManyRequests) as trouble:
            if time.monotonic() - answered > OUTAGE_S:
                raise
            line.trouble(str(trouble))
            pause_s = max(1.0, trouble.retry_after_s or 0.0)
        if request["status"] == "queued":
            time.sleep(max(0.0, min(pause_s, until - time.monotonic())))
    return request


def _poll(client: Client, request: str, wait_s: float) -> tuple[Mapping[str, Any], float]:
    """How it stands after one long poll, and how long the service would like us to stay away."""
    from poolkeeper.http_client import decoded

    query = {"wait_s": round(wait_s, 3), "status": "queued"}
    answer = client.answer("GET", path("requests", request), query=query, timeout_s=wait_s + 10, tries=1)
    return decoded(answer), answer.retry_after_s or 0.0


class _Line:
    """What is shown meanwhile."""

    def __init__(self) -> None:
        self.live = is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"
        self.poll_s = LIVE_POLL_S if self.live else POLL_S
        self._last = ""
        self._drawn = False

    def show(self, request: Mapping[str, Any], waited_s: float) -> None:
        """How it stands now."""
        place = formatting.position(request)
        told = f"{request['id']} {request['status']}" + (f", position {place}" if place else "")
        if self.live:
            self._draw(f"{told}, for {formatting.duration(int(waited_s))}; Ctrl-C stops waiting")
        elif told != self._last:
            say(told)
        self._last = told

    def trouble(self, what: str) -> None:
        """No answer, but not yet given up."""
        if self.live:
            self._draw(f"{what}; trying again")
        elif what != self._last:
            say(f"{what}; trying again")
        self._last = what

    def clear(self) -> None:
        """Nothing of it stays."""
        if self._drawn:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._drawn = False

    def _draw(self, line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        click.echo(f"\r\x1b[K{formatting.one_line(line)[:width]}", nl=False, err=True, color=True)
        self._drawn = True
