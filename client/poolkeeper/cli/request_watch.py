"""`poolkeeper request list --watch`: the list on a terminal, drawn again at intervals and when the window changes."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from poolkeeper import formatting
from poolkeeper.cli import columns, options, output, table_layout
from poolkeeper.cli.confirm import is_terminal
from poolkeeper.cli.error_output import CommandError
from poolkeeper.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from poolkeeper import Client

DEFAULT_INTERVAL_S = 2.0
MIN_INTERVAL_S = 0.5
TIMEOUT_S = 5.0
"""The seconds that an answer of the service may take."""
FRAME_LINES = 3
"""The lines without requests: the head, the titles and the number of requests that do not fit."""


def watch(path: str, query: Mapping[str, Any], limit: int, interval_s: float) -> None:
    """Show a list of requests until q or Ctrl-C. If the service cannot be reached, try again."""
    is_live = is_terminal(sys.stdout) and is_terminal(sys.stdin) and os.environ.get("TERM") != "dumb"
    if not is_live:
        raise CommandError("--watch needs a terminal; without --watch the list is printed once", ExitCode.USAGE)
    if options.current_options().for_programs:
        message = "--watch draws for people; for a program, poll with `-o json` or follow `poolkeeper events --follow -o json`"
        raise CommandError(message, ExitCode.USAGE)
    RequestWatch(options.client(timeout_s=TIMEOUT_S, tries=1), path, query, limit).show(interval_s)


class RequestWatch:
    """The list of requests on the terminal, with the rows of the last read."""

    def __init__(self, client: Client, path: str, query: Mapping[str, Any], limit: int) -> None:
        self._client, self._path, self._query, self._limit = client, path, query, limit
        self._rows: Sequence[Mapping[str, Any]] = ()
        self._has_more = False
        self._error = ""
        self._wide = options.current_options().output == "wide"

    def read(self) -> None:
        """Read the list. If the service cannot be reached or is busy, the rows stay and the error is shown."""
        from poolkeeper.errors import TooManyRequests, Unavailable

        try:
            self._rows, self._has_more = columns.read_requests(self._client, self._path, self._query, self._limit)
            self._error = ""
        except (Unavailable, TooManyRequests) as error:
            self._error = f"{error}; trying again"

    def show(self, interval_s: float) -> None:
        """Draw the list at each interval and at each change of the window, until a key ends it."""
        from rich.console import Console
        from rich.live import Live

        from poolkeeper.cli.keyboard import open_keyboard

        console = Console(highlight=False)
        with (
            open_keyboard() as keyboard,
            Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live,
        ):
            while True:
                self.read()
                until_s = time.monotonic() + interval_s
                while (left_s := until_s - time.monotonic()) > 0:
                    size = shutil.get_terminal_size()
                    live.update(self.screen(size.columns, size.lines), refresh=True)
                    if {"q", "Q"} & set(keyboard.wait(left_s)):
                        return

    def screen(self, width: int, height: int) -> Any:
        """Return a head and as many of the newest requests as fit. A reason without room in its row is below the row."""
        from rich.console import Group
        from rich.text import Text

        shown, texts = self._visible(width, height - FRAME_LINES)
        lines = [self._head(), *(texts if shown else [Text("no request" if not self._error else "")])]
        if rest := self._rest(shown):
            lines.append(Text(rest, style="dim"))
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return Group(*lines)

    def _visible(self, width: int, height: int) -> tuple[int, list[Any]]:
        """Return the number of requests that fit into this many lines, and the lines of their table."""
        visible = [column for column in columns.REQUESTS if self._wide or not column.wide]
        cells = [[output.cell_text(column.cell(row)) for column in visible] for row in self._rows[: max(1, height)]]
        titles, *texts = table_layout.lines(visible, cells, width, output.STYLES)
        lines, shown = [titles], 0
        for text in texts:
            parts = text.split("\n")
            if shown and len(lines) - 1 + len(parts) > height:
                break
            lines += parts
            shown += 1
        return shown, lines

    def _head(self) -> Any:
        from rich.text import Text

        if self._error:
            return Text(formatting.one_line(self._error), style="bold red")
        location = formatting.one_line(f"workspace {self._client.workspace} at {self._client.url}")
        return Text.assemble(("requests", "bold"), f"  {time.strftime('%H:%M:%S')}  ", ("q ends", "dim"), f"  {location}")

    def _rest(self, row_count: int) -> str:
        """Return the number of requests that do not fit into the window, in words; an empty text if all fit."""
        count = len(self._rows) - row_count
        return f"and {count} more" + (" at least" if self._has_more else "") if count or self._has_more else ""
