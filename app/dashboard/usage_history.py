"""How a pool was used over the last hours: as a plot, in a sentence, and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flask import Response, jsonify

from app.dashboard.page_context import PageContext
from app.domain.models import Pool
from app.domain.usage_history import POOL_SERIES, UnitSeries, UsageHistory

PLOT_LINES = 6
"""Policies that have a line of their own in the plot: those that used most."""
TABLE_ROWS = 12
"""Rows of the table."""


@dataclass(frozen=True, slots=True)
class PlotLine:
    """What one policy, or all of them, used."""

    name: str
    values: UnitSeries


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """A stretch of time, and what each used of the key on average."""

    from_ms: int
    means: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class HistoryView:
    """What is told of one key of a pool."""

    key: str
    keys: tuple[str, ...]
    text: str
    names: tuple[str, ...]
    rows: tuple[HistoryRow, ...]
    plot_url: str
    """Where the plot gets its numbers."""


def history_view(context: PageContext, pool: Pool) -> HistoryView | None:
    """The last hours of a pool, of the key that is asked for; None while nothing is noted."""
    key = _key(pool, context.http_request.args.get("key"))
    told = context.services.dashboard_queries.get_history(context.workspace, pool.name)
    if key is None or not told:
        return None
    lines = _lines(told, key)
    return HistoryView(
        key=key,
        keys=tuple(sorted(pool.capacity)),
        text=_sentence(told, key, lines),
        names=tuple(line.name for line in lines),
        rows=tuple(_rows(told, lines)),
        plot_url=context.link(f"/pools/{pool.name}/history", key=key),
    )


def plot_response(context: PageContext, pool: Pool, asked: str | None) -> Response:
    """The same as numbers, for the plot."""
    key = _key(pool, asked)
    told = context.services.dashboard_queries.get_history(context.workspace, pool.name)
    series: list[dict[str, Any]] = []
    if key and told:
        series = [{"name": line.name, "values": line.values} for line in _lines(told, key)]
        series.append({"name": "capacity", "values": told.capacity.get(key, ())})
    return jsonify(key=key, times=[at // 1000 for at in told.times_ms], series=series)


def _key(pool: Pool, asked: str | None) -> str | None:
    if asked in pool.capacity:
        return asked
    usual = str(pool.settings.get("cost_key"))
    return usual if usual in pool.capacity else min(pool.capacity, default=None)


def _lines(told: UsageHistory, key: str) -> list[PlotLine]:
    """All of it first, then those who used most."""
    found = [(_total(of[key]), name) for name, of in told.series.items() if key in of]
    most = [name for total, name in sorted(found, key=lambda one: (-one[0], one[1])) if name != POOL_SERIES and total][:PLOT_LINES]
    return [PlotLine(name, told.series[name][key]) for name in (POOL_SERIES, *most) if key in told.series.get(name, {})]


def _total(values: UnitSeries) -> int:
    return sum(value or 0 for value in values)


def _sentence(told: UsageHistory, key: str, lines: Sequence[PlotLine]) -> str:
    minutes = max(1, round((told.times_ms[-1] - told.times_ms[0]) / 60_000))
    said = []
    for line in lines:
        known = [value for value in line.values if value is not None]
        if known:
            name = "all together" if line.name == POOL_SERIES else line.name.removeprefix("orchestrator/")
            said.append(f"{name} {sum(known) / len(known):.1f} on average and {max(known):,} at most")
    span = f"{minutes} min" if minutes < 120 else f"{minutes / 60:.0f} h"
    return f"Of {key}, in the last {span}: {'; '.join(said) or 'nothing is known'}."


def _rows(told: UsageHistory, lines: Sequence[PlotLine]) -> Iterator[HistoryRow]:
    """The newest first."""
    step = -(-len(told.times_ms) // TABLE_ROWS)
    for until in range(len(told.times_ms), 0, -step):
        since = max(0, until - step)
        yield HistoryRow(told.times_ms[since], tuple(_mean(line.values[since:until]) for line in lines))


def _mean(values: UnitSeries) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
