"""`poolkeeper top`: pools, their policies and queues, as they change."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import click

from poolkeeper import formatting
from poolkeeper.cli import options, output
from poolkeeper.cli.command_base import VerbCommand
from poolkeeper.cli.confirm import is_terminal
from poolkeeper.cli.error_output import is_bug
from poolkeeper.cli.top_data import TopData, load
from poolkeeper.cli.top_render import Line, Span, TopView

if TYPE_CHECKING:
    from poolkeeper import Client
    from poolkeeper.cli.keyboard import Keyboard

MIN_INTERVAL_S = 0.5
"""The least seconds between two reads, with any number of events."""
TIMEOUT_S = 5.0
"""The seconds that one answer may take."""
MIN_POLICIES = 3
"""The least number of policies of a pool on a terminal; at most they take a quarter of it, so that waiters have room."""
MIN_REQUESTS = 2
"""The least number of allocations and of waiters of a pool on a terminal."""
PIPE_WIDTH = 80
"""The columns of the output without a terminal."""


HELP = (
    "?            shows this help; any key hides it again",
    "q            quits",
    "1 … 9        choose the pool that is shown in detail, if there are many",
    "up, down     choose the pool before and after it; k and j do the same",
    "",
    "RUNNING      the allocations that were granted first: short id, name, owner,",
    "             component, amounts, and the time that each has run",
    "WAITING      the head of the queue: position and short id, the time that each",
    "             has waited, and below it the reason and the likely start",
)
"""The help that `?` shows, in at most 80 columns."""


@click.command("top", cls=VerbCommand, example="poolkeeper top\npoolkeeper top --interval 10\npoolkeeper top --once")
@click.option(
    "--interval", type=click.FloatRange(min=MIN_INTERVAL_S), default=2.0, show_default=True, metavar="SECONDS",
    help="Seconds between two reads; an event causes a read at once.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Print the data once and exit, as without a terminal.")
def top(interval: float, once: bool) -> None:
    """Show pools, policies, allocations and queues as they change.

    A bar shows the units of a key: used in share, borrowed, held for a waiter, and free. On a terminal, ? shows help, q quits.
    """
    live = is_terminal(sys.stdout) and is_terminal(sys.stdin) and os.environ.get("TERM") != "dumb"
    if once or not live or options.current_options().for_programs:
        _print(load(options.client(), None, every_pool=True))
    else:
        _watch(options.client(timeout_s=TIMEOUT_S, tries=1), interval)


def _print(data: TopData) -> None:
    if options.current_options().for_programs:
        rows = [
            {
                **pool,
                "policies": list(data.details[pool["name"]].policies),
                "running": list(data.details[pool["name"]].running),
                "queue": list(data.details[pool["name"]].queue),
            }
            for pool in data.pools
        ]
        return output.show_list(rows, (), lambda row: str(row["name"]))
    width = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else PIPE_WIDTH
    view = TopView(width, plain=not _has_blocks())
    for _, lines in view.pools(data):
        for line in lines:
            click.echo("".join(word.text for word in line).rstrip())
        click.echo()
    if data.pools:
        return click.echo("".join(word.text for word in view.legend()))
    return click.echo("there is no pool")


def _has_blocks() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "") == "utf8"


def _watch(client: Client, interval_s: float) -> None:
    from poolkeeper.cli.keyboard import open_keyboard

    with open_keyboard() as keyboard:
        refresher = TopRefresher(client, keyboard, interval_s)
        Thread(target=refresher.refresh_until_closed, name="looks", daemon=True).start()
        Thread(target=refresher.follow_events, name="listens", daemon=True).start()
        try:
            _TopScreen(refresher, client).show(keyboard)
        finally:
            refresher.close()


class TopRefresher:
    """The thread that loads the data of `top`, at intervals and at events; it has the latest data."""

    def __init__(self, client: Client, keyboard: Keyboard, interval_s: float) -> None:
        self._client, self._keyboard, self._interval_s = client, keyboard, interval_s
        self.selected_pool: str | None = None
        self.data: TopData | None = None
        self.loaded_s = 0.0
        self.error: Exception | None = None
        """The error of the last load; None if it succeeded."""
        self._refresh, self._closed = Event(), Event()

    def refresh_until_closed(self) -> None:
        """Load the data repeatedly, until the refresher is closed."""
        while not self._closed.is_set():
            began_s = time.monotonic()
            try:
                self.data, self.loaded_s, self.error = load(self._client, self.selected_pool), began_s, None
            except Exception as error:  # `_TopScreen` decides about it
                self.error = error
            self._keyboard.wake()
            self._closed.wait(MIN_INTERVAL_S)
            self._refresh.wait(max(0.0, began_s + self._interval_s - time.monotonic()))
            self._refresh.clear()

    def follow_events(self) -> None:
        """Refresh at every event, as long as the service sends events."""
        from poolkeeper.errors import PoolkeeperError

        event_client = self._client.clone()
        while not self._closed.is_set():
            try:
                for _ in event_client.events():
                    self._refresh.set()
            except PoolkeeperError:  # unreachable, or not permitted: the interval suffices
                self._closed.wait(self._interval_s)

    def select(self, pool: str) -> None:
        """Select the pool that is shown in detail."""
        self.selected_pool = pool
        self._refresh.set()

    def close(self) -> None:
        """End both threads."""
        self._closed.set()
        self._refresh.set()


class _TopScreen:
    """The view on the terminal."""

    def __init__(self, refresher: TopRefresher, client: Client) -> None:
        self._refresher = refresher
        self._shows_help = False
        self._location = formatting.one_line(f"workspace {client.workspace} at {client.url}")

    def show(self, keyboard: Keyboard) -> None:
        """Show the view until a key, or a token without permission, ends it."""
        from rich.console import Console
        from rich.live import Live

        from poolkeeper.errors import AccessDenied

        console = Console(highlight=False)
        with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
            while True:
                error = self._refresher.error
                if error and (isinstance(error, AccessDenied) or is_bug(error)):
                    break
                size = shutil.get_terminal_size()
                live.update(_render(self.lines(size.columns, size.lines), size.columns), refresh=True)
                if any(self._is_end(key) for key in keyboard.wait(1.0)):
                    return
        raise error

    def lines(self, width: int, height: int) -> list[Line]:
        """Return as many lines as fit, the selected pool among them."""
        head = [self._head(), *self._error_lines()]
        data = self._refresher.data
        if self._shows_help:
            return [*head, [], *([Span(line)] for line in HELP)]
        if data is None:
            return head
        if not data.pools:
            return [*head, [Span("there is no pool")]]
        max_policies, max_requests = max(MIN_POLICIES, height // 4), max(MIN_REQUESTS, height // 8)
        view = TopView(width, plain=not _has_blocks(), max_policies=max_policies, max_requests=max_requests)
        selected_pool = self._selected_pool(data)
        blocks = [[*lines, []] for _, lines in view.pools(data, selected_pool)]
        index = [pool["name"] for pool in data.pools].index(selected_pool)
        room = height - len(head) - 2
        first = index
        while first and sum(map(len, blocks[first - 1 : index + 1])) <= room:
            first -= 1
        body = [line for block in blocks[first:] for line in block][:room]
        return [*head, [], *body, view.legend()]

    def _head(self) -> Line:
        now, keys = time.strftime("%H:%M:%S"), "? help  q quit"
        return [Span("poolkeeper", "bold"), Span(f"  {now}  "), Span(keys, "dim"), Span(f"  {self._location}")]

    def _error_lines(self) -> list[Line]:
        if self._refresher.error is None:
            return [] if self._refresher.data else [[Span("looking ...", "dim")]]
        ago = f"; this was {time.monotonic() - self._refresher.loaded_s:.0f} s ago" if self._refresher.data else ""
        return [[Span(formatting.one_line(f"{self._refresher.error}; trying again{ago}"), "bold red")]]

    def _selected_pool(self, data: TopData) -> str:
        names = [str(pool["name"]) for pool in data.pools]
        return self._refresher.selected_pool if self._refresher.selected_pool in names else names[0]

    def _is_end(self, key: str) -> bool:
        if key in ("q", "Q"):
            return True
        self._shows_help = key in ("?", "h") and not self._shows_help
        data = self._refresher.data
        if data and data.pools:
            names = [str(pool["name"]) for pool in data.pools]
            index = names.index(self._selected_pool(data))
            target = {"up": index - 1, "k": index - 1, "down": index + 1, "j": index + 1}.get(
                key, int(key) - 1 if key in "123456789" else index
            )
            if target != index and 0 <= target < len(names):
                self._refresher.select(names[target])
        return False


def _render(lines: Sequence[Line], width: int) -> Any:
    """Return the lines for rich, each cut to the width."""
    from rich.text import Text

    whole = [Text.assemble(*((word.text, word.style) for word in line)) for line in lines]
    for line in whole:
        line.truncate(width)
    return Text("\n", no_wrap=True).join(whole)
