"""Results on stdout: tables for people; JSON, YAML, bare names for programs. Tables are cut to a terminal, never in a pipe."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from poolkeeper.cli import table_layout
from poolkeeper.cli.confirm import is_terminal
from poolkeeper.cli.options import current_options
from poolkeeper.formatting import one_line, printable

Row = Mapping[str, Any]

STYLES = {
    "allocated": "green",
    "queued": "yellow",
    "preempting": "magenta",
    "released": "dim",
    "cancelled": "dim",
    "rejected": "red",
    "expired": "red",
    "preempted": "red",
}
"""Status → its style on a terminal with colours."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its title, and the function that makes its cell of a row. `wide`: only with -o wide. `long`: a cell
    may take two lines.

    On a terminal that is too narrow, a column with a `rank` may be left out, the lowest rank first (0: never). A column with
    `below` then has its cells on a line below the row.
    """

    title: str
    cell: Callable[[Any], Any]
    wide: bool = False
    long: bool = False
    rank: int = 0
    below: bool = False


def show_list(rows: Iterable[Row], columns: Sequence[Column], name: Callable[[Row], str]) -> None:
    """Print a list in the chosen format."""
    output_format = current_options().output
    if output_format == "name":
        for row in rows:
            click.echo(name(row))
    elif output_format in ("json", "yaml"):
        show_data(list(rows))
    else:
        show_table(rows, columns, wide=output_format == "wide")


def show_item(item: Row, name: str, describe: Callable[[], None]) -> None:
    """Print one object in the chosen format; `describe` prints it for people."""
    output_format = current_options().output
    if output_format == "name":
        click.echo(name)
    elif output_format in ("json", "yaml"):
        show_data(item)
    else:
        describe()


def show_result(item: Row | None, name: str, sentence: str) -> None:
    """Print the result of a change: a sentence for people, the object for programs."""
    if item is not None or current_options().output == "name":
        show_item(item or {}, name, lambda: click.echo(printable(sentence)))
    elif not current_options().for_programs:
        click.echo(printable(sentence))


def show_data(value: Any) -> None:
    """Print a value as JSON or YAML."""
    if current_options().output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), nl=False)
    else:
        click.echo(to_json(value, indent=2))


def to_json(value: Any, indent: int | None = None) -> str:
    """Return JSON in the characters that stdout can encode."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    return json.dumps(value, indent=indent, ensure_ascii=encoding != "utf8")


def show_fields(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print names and values below each other, for people."""
    shown = [(name, one_line(value)) for name, value in pairs if value not in (None, "")]
    width = max(len(name) for name, _ in shown) + 2
    for name, value in shown:
        lines = _wrap(value, width)
        click.echo(f"{name + ':':<{width}}{lines[0]}")
        for line in lines[1:]:
            click.echo(" " * width + line)


def _wrap(value: str, indent: int) -> list[str]:
    """Return the lines of a value; on a terminal it is wrapped."""
    if not is_terminal(sys.stdout):
        return [value]
    width = max(20, shutil.get_terminal_size().columns - indent)
    return textwrap.wrap(value, width, break_long_words=False, break_on_hyphens=False)


def show_heading(text: str) -> None:
    """Print a heading over a part of a description."""
    click.echo(f"\n{printable(text)}")


def show_table(rows: Iterable[Row], columns: Sequence[Column], *, wide: bool | None = None, indent: int = 0) -> None:
    """Print a table: with rich on a terminal, else plain and aligned."""
    if wide is None:
        wide = current_options().output == "wide"
    shown = [column for column in columns if wide or not column.wide]
    cells = [[cell_text(column.cell(row)) for column in shown] for row in rows]
    if is_terminal(sys.stdout):
        _print_rich(shown, cells, indent)
    else:
        _print_plain(shown, cells, indent)


def cell_text(value: Any) -> str:
    """Return the text of a cell. It is never empty, so that a script can split the line; leading spaces stay."""
    text = "-" if value is None or value == "" else str(value)
    lead = len(text) - len(text.lstrip(" "))
    return " " * lead + one_line(text)


def _print_plain(columns: Sequence[Column], cells: list[list[str]], indent: int) -> None:
    lines = [[column.title for column in columns], *cells] if current_options().headers else cells
    if not lines:
        return
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        padded = "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
        click.echo(" " * indent + padded.rstrip())


def _print_rich(columns: Sequence[Column], cells: list[list[str]], indent: int) -> None:
    """Print a table as wide as the terminal. Long columns take more lines; a cell to copy, such as an id, is never cut."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    width = shutil.get_terminal_size().columns - indent
    layout = table_layout.fit(columns, cells, width)
    console = Console(highlight=False, width=max(width, layout.width) + indent)
    if layout.below is not None:
        lines = table_layout.lines(columns, cells, width, STYLES)
        for line in lines if current_options().headers else lines[1:]:
            for part in line.split("\n"):
                lead = len(part.plain) - len(part.plain.lstrip())
                console.print(Padding(part[lead:], (0, 0, 0, indent + lead), expand=False), crop=False)
        return
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=current_options().headers, header_style="bold")
    for index in layout.columns:
        drawn.add_column(columns[index].title, no_wrap=not columns[index].long, overflow="fold")
    for row in cells:
        drawn.add_row(*(Text(row[index], style=STYLES.get(row[index], "")) for index in layout.columns))
    console.print(Padding(drawn, (0, 0, 0, indent), expand=False), crop=False)
