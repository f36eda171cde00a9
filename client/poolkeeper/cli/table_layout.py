"""The layout of a table on a terminal: the columns that are drawn, and the column on a line of its own below each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poolkeeper.cli.output import Column

GAP = 2
MIN_LONG_WIDTH = 10
"""The least width of a long column."""
MIN_SENTENCE_WIDTH = 30
"""The least width of a column that can stand below its row instead."""
EMPTY = "-"


@dataclass(frozen=True, slots=True)
class Layout:
    """The indices of the columns that are drawn, the index of the column below each row, and the least width."""

    columns: tuple[int, ...]
    below: int | None
    width: int


def fit(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> Layout:
    """Return the layout of a table for a terminal of this width.

    Columns are left out in this order until the others fit:
    1. optional columns (with a `rank`) without a value in any row, by their `rank`,
    2. the column that may stand below its row: it gets lines of its own there,
    3. the other optional columns, by their `rank`.
    """
    drawn, below = list(range(len(columns))), None
    is_empty = [all(row[index] == EMPTY for row in cells) for index in drawn]
    ranked = sorted((index for index in drawn if columns[index].rank), key=lambda index: columns[index].rank)
    lower = [index for index in drawn if columns[index].below]
    steps = [index for index in (*ranked, *lower) if is_empty[index]]
    steps += [index for index in (*lower, *ranked) if not is_empty[index]]
    while steps and _least_width(columns, cells, drawn) > width:
        index = steps.pop(0)
        drawn.remove(index)
        if columns[index].below and not is_empty[index]:
            below = index
    return Layout(tuple(drawn), below, _least_width(columns, cells, drawn))


def _least_width(columns: Sequence[Column], cells: Sequence[Sequence[str]], drawn: Sequence[int]) -> int:
    """Return the least width of these columns, without the gap after the last."""
    widths = _natural_widths(columns, cells, drawn)
    least = [min(width, _narrowest(columns[index], width)) for index, width in zip(drawn, widths, strict=True)]
    return sum(least) + GAP * (len(least) - 1)


def _narrowest(column: Column, width: int) -> int:
    """Return the least width of a column that has this width now."""
    if column.below:
        return MIN_SENTENCE_WIDTH
    return MIN_LONG_WIDTH if column.long else width


def _natural_widths(columns: Sequence[Column], cells: Sequence[Sequence[str]], drawn: Sequence[int]) -> list[int]:
    return [max(len(cell) for cell in [columns[index].title, *(row[index] for row in cells)]) for index in drawn]


def lines(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int, styles: Mapping[str, str]) -> list[Any]:
    """Return the line of titles, then one text for each row. The text of a row has a second line if a cell stands below it.

    Long cells are cut to the width of the terminal; the line below is not cut.
    """
    from rich.text import Text

    layout = fit(columns, cells, width)
    widths = _natural_widths(columns, cells, layout.columns)
    excess = sum(widths) + GAP * (len(widths) - 1) - width
    for place in reversed(range(len(widths))):
        if columns[layout.columns[place]].long and excess > 0:
            narrow = max(_narrowest(columns[layout.columns[place]], widths[place]), widths[place] - excess)
            excess -= max(0, widths[place] - narrow)
            widths[place] = min(widths[place], narrow)

    def line(row: Sequence[str], style: Mapping[str, str]) -> Any:
        texts = [Text(row[index], style=style.get(row[index], "")) for index in layout.columns]
        for text, cell_width in zip(texts, widths, strict=True):
            text.truncate(cell_width, overflow="ellipsis", pad=True)
        text = Text(" " * GAP).join(texts)
        text.rstrip()
        if layout.below is not None and row[layout.below] != EMPTY:
            text.append(f"\n{' ' * GAP}{row[layout.below]}")
        return text

    titles = ["" if index == layout.below else column.title for index, column in enumerate(columns)]
    return [line([title or EMPTY for title in titles], dict.fromkeys(titles, "bold")), *(line(row, styles) for row in cells)]
