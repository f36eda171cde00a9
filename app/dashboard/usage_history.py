"""The usage history of a pool: as a plot, in a sentence, and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flask import Response, jsonify

from app.dashboard.page_context import PageContext
from app.domain.models import Pool
from app.domain.usage_history import POOL_SERIES, UnitSeries, UsageHistory

PLOT_LINES = 6
"""Policies in the plot, at most: those with the highest usage."""
TABLE_ROWS = 12
"""Rows of the table."""


@dataclass(frozen=True, slots=True)
class PlotLine:
    """The usage of one policy, or of the pool."""

    name: str
    values: UnitSeries


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """The mean usage of each line in a stretch of time."""

    from_ms: int
    means: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class HistoryView:
    """The usage history of one key of a pool, as it is shown."""

    key: str
    keys: tuple[str, ...]
    text: str
    names: tuple[str, ...]
    rows: tuple[HistoryRow, ...]
    plot_url: str
    """The URL of the data of the plot."""


def history_view(context: PageContext, pool: Pool) -> HistoryView | None:
    """Return the usage history of the chosen key of a pool; None while there are no samples."""
    key = _key(pool, context.http_request.args.get("key"))
    history = context.services.dashboard_queries.get_history(context.workspace, pool.name)
    if key is None or not history:
        return None
    lines = _lines(history, key)
    return HistoryView(
        key=key,
        keys=tuple(sorted(pool.capacity)),
        text=_sentence(history, key, lines),
        names=tuple(line.name for line in lines),
        rows=tuple(_rows(history, lines)),
        plot_url=context.link(f"/pools/{pool.name}/history", key=key),
    )


def plot_response(context: PageContext, pool: Pool, requested_key: str | None) -> Response:
    """Return the usage history as numbers, for the plot."""
    key = _key(pool, requested_key)
    history = context.services.dashboard_queries.get_history(context.workspace, pool.name)
    series: list[dict[str, Any]] = []
    if key and history:
        series = [{"name": line.name, "values": line.values} for line in _lines(history, key)]
        series.append({"name": "capacity", "values": history.capacity.get(key, ())})
    return jsonify(key=key, times=[at_ms // 1000 for at_ms in history.times_ms], series=series)


def _key(pool: Pool, requested_key: str | None) -> str | None:
    if requested_key in pool.capacity:
        return requested_key
    cost_key = str(pool.settings.get("cost_key"))
    return cost_key if cost_key in pool.capacity else min(pool.capacity, default=None)


def _lines(history: UsageHistory, key: str) -> list[PlotLine]:
    """Return the line of the pool, then those of the policies with the highest usage."""
    totals = {name: _total(series[key]) for name, series in history.series.items() if key in series and name != POOL_SERIES}
    names = sorted((name for name, total in totals.items() if total), key=lambda name: (-totals[name], name))[:PLOT_LINES]
    return [PlotLine(name, history.series[name][key]) for name in (POOL_SERIES, *names) if key in history.series.get(name, {})]


def _total(values: UnitSeries) -> int:
    return sum(value or 0 for value in values)


def _sentence(history: UsageHistory, key: str, lines: Sequence[PlotLine]) -> str:
    minutes = max(1, round((history.times_ms[-1] - history.times_ms[0]) / 60_000))
    parts = []
    for line in lines:
        values = [value for value in line.values if value is not None]
        if values:
            name = "all together" if line.name == POOL_SERIES else line.name.removeprefix("orchestrator/")
            parts.append(f"{name} {sum(values) / len(values):.1f} on average and {max(values):,} at most")
    span = f"{minutes} min" if minutes < 120 else f"{minutes / 60:.0f} h"
    return f"Of {key}, in the last {span}: {'; '.join(parts) or 'nothing is known'}."


def _rows(history: UsageHistory, lines: Sequence[PlotLine]) -> Iterator[HistoryRow]:
    """Yield the rows of the table, the newest first."""
    step = -(-len(history.times_ms) // TABLE_ROWS)
    for until in range(len(history.times_ms), 0, -step):
        since = max(0, until - step)
        yield HistoryRow(history.times_ms[since], tuple(_mean(line.values[since:until]) for line in lines))


def _mean(series: UnitSeries) -> float | None:
    values = [value for value in series if value is not None]
    return sum(values) / len(values) if values else None
