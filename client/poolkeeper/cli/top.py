"""`poolkeeper top`: pools, who uses them and who waits, as it changes."""

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
from poolkeeper.cli.command_base import Verb
from poolkeeper.cli.confirm import is_terminal
from poolkeeper.cli.error_output import is_bug
from poolkeeper.cli.top_data import Sight, see
from poolkeeper.cli.top_render import Line, Picture, Word

if TYPE_CHECKING:
    from poolkeeper import Client
    from poolkeeper.cli.keyboard import Keyboard

SOONEST_S = 0.5
"""Between two looks, at least, however much happens."""
ANSWER_S = 5.0
"""How long one answer may take."""
FEWEST = 3
"""Policies of a pool that are shown on a terminal, at least; a third of it at most, so that who waits is in sight."""
IN_A_PIPE = 100
"""Columns where nobody says how many there are."""


@click.command("top", cls=Verb, example="poolkeeper top\npoolkeeper top --interval 10\npoolkeeper top --once")
@click.option(
    "--interval", type=click.FloatRange(min=SOONEST_S), default=2.0, show_default=True, metavar="SECONDS",
    help="How often to look where nothing happens; what happens is seen at once.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Look once, print it and end; as where there is no terminal.")
def top(interval: float, once: bool) -> None:
    """Show pools, policies and queues as they change.

    A bar shows what of a pool's key is used in shares, borrowed, held for somebody who waits, and free. Arrows, or a number,
    choose the pool that is looked at closely where there are many; q ends it.
    """
    live = is_terminal(sys.stdout) and is_terminal(sys.stdin) and os.environ.get("TERM") != "dumb"
    if once or not live or options.said().for_programs:
        _print(see(options.client(), None, whole=True))
    else:
        _watch(options.client(timeout_s=ANSWER_S, tries=1), interval)


def _print(sight: Sight) -> None:
    if options.said().for_programs:
        rows = [
            {**pool, "policies": list(sight.close[pool["name"]].policies), "queue": list(sight.close[pool["name"]].queue)}
            for pool in sight.pools
        ]
        return output.listing(rows, (), lambda row: str(row["name"]))
    width = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else IN_A_PIPE
    picture = Picture(width, plain=not _has_blocks())
    for _, lines in picture.pools(sight):
        for line in lines:
            click.echo("".join(word.text for word in line).rstrip())
        click.echo()
    if sight.pools:
        return click.echo("".join(word.text for word in picture.legend()))
    return click.echo("there is no pool")


def _has_blocks() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "") == "utf8"


def _watch(client: Client, interval_s: float) -> None:
    from poolkeeper.cli.keyboard import keys

    with keys() as board:
        eye = Eye(client, board, interval_s)
        Thread(target=eye.look, name="looks", daemon=True).start()
        Thread(target=eye.listen, name="listens", daemon=True).start()
        try:
            _Screen(eye, client).show(board)
        finally:
            eye.close()


class Eye:
    """Looks at the service, in a thread of its own: every so often, and when something happened. What it sees last is here."""

    def __init__(self, client: Client, board: Keyboard, interval_s: float) -> None:
        self._client, self._board, self._interval_s = client, board, interval_s
        self.chosen: str | None = None
        self.sight: Sight | None = None
        self.seen_s = 0.0
        self.trouble: Exception | None = None
        """Why there is no newer sight."""
        self._again, self._over = Event(), Event()

    def look(self) -> None:
        """Look, until it is closed."""
        while not self._over.is_set():
            begun = time.monotonic()
            try:
                self.sight, self.seen_s, self.trouble = see(self._client, self.chosen), begun, None
            except Exception as trouble:  # who shows it judges it
                self.trouble = trouble
            self._board.wake()
            self._over.wait(SOONEST_S)
            self._again.wait(max(0.0, begun + self._interval_s - time.monotonic()))
            self._again.clear()

    def listen(self) -> None:
        """Look again whenever something has happened, as long as that is told."""
        from poolkeeper.errors import PoolkeeperError

        twin = self._client.twin()
        while not self._over.is_set():
            try:
                for _ in twin.events():
                    self._again.set()
            except PoolkeeperError:  # it is away, or will not tell: ticks are enough
                self._over.wait(self._interval_s)

    def choose(self, pool: str) -> None:
        """This one is looked at closely from now on."""
        self.chosen = pool
        self._again.set()

    def close(self) -> None:
        """No more."""
        self._over.set()
        self._again.set()


class _Screen:
    """What is on the terminal."""

    def __init__(self, eye: Eye, client: Client) -> None:
        self._eye = eye
        self._where = formatting.one_line(f"workspace {client.workspace} at {client.url}")

    def show(self, board: Keyboard) -> None:
        """Until a key ends it; a token that is not good for it ends it, too."""
        from rich.console import Console
        from rich.live import Live

        from poolkeeper.errors import Denied

        console = Console(highlight=False)
        with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
            while True:
                trouble = self._eye.trouble
                if trouble and (isinstance(trouble, Denied) or is_bug(trouble)):
                    break
                size = shutil.get_terminal_size()
                live.update(_drawn(self.lines(size.columns, size.lines), size.columns), refresh=True)
                if any(self._is_end(key) for key in board.wait(1.0)):
                    return
        raise trouble

    def lines(self, width: int, height: int) -> list[Line]:
        """As many as fit, the chosen pool among them."""
        head = [self._head(), *self._trouble()]
        sight = self._eye.sight
        if sight is None:
            return head
        if not sight.pools:
            return [*head, [Word("there is no pool")]]
        picture, chosen = Picture(width, plain=not _has_blocks(), policies=max(FEWEST, height // 3)), self._chosen(sight)
        blocks = [[*lines, []] for _, lines in picture.pools(sight, chosen)]
        at = [pool["name"] for pool in sight.pools].index(chosen)
        room = height - len(head) - 2
        first = at
        while first and sum(map(len, blocks[first - 1 : at + 1])) <= room:
            first -= 1
        body = [line for block in blocks[first:] for line in block][:room]
        return [*head, [], *body, picture.legend()]

    def _head(self) -> Line:
        now, keys = time.strftime("%H:%M:%S"), "q ends, arrows or a number choose a pool"
        return [Word("poolkeeper", "bold"), Word(f"  {now}  "), Word(keys, "dim"), Word(f"  {self._where}")]

    def _trouble(self) -> list[Line]:
        if self._eye.trouble is None:
            return [] if self._eye.sight else [[Word("looking ...", "dim")]]
        ago = f"; this was {time.monotonic() - self._eye.seen_s:.0f} s ago" if self._eye.sight else ""
        return [[Word(formatting.one_line(f"{self._eye.trouble}; trying again{ago}"), "bold red")]]

    def _chosen(self, sight: Sight) -> str:
        names = [str(pool["name"]) for pool in sight.pools]
        return self._eye.chosen if self._eye.chosen in names else names[0]

    def _is_end(self, key: str) -> bool:
        if key in ("q", "Q"):
            return True
        sight = self._eye.sight
        if sight and sight.pools:
            names = [str(pool["name"]) for pool in sight.pools]
            at = names.index(self._chosen(sight))
            to = {"up": at - 1, "k": at - 1, "down": at + 1, "j": at + 1}.get(key, int(key) - 1 if key in "123456789" else at)
            if to != at and 0 <= to < len(names):
                self._eye.choose(names[to])
        return False


def _drawn(lines: Sequence[Line], width: int) -> Any:
    """For rich; what is too long is cut."""
    from rich.text import Text

    whole = [Text.assemble(*((word.text, word.style) for word in line)) for line in lines]
    for line in whole:
        line.truncate(width)
    return Text("\n", no_wrap=True).join(whole)
