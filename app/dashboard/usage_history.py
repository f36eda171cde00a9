"""The usage history of a pool: as a plot, in a sentence, and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from flask import Response, jsonify

from app.dashboard.page_context import PageContext
from app.domain.models import Pool
from app.domain.usage_history import POOL_SERIES, UnitSeries, UsageHistory

WINDOWS_H = (1, 6, 12)
"""The choices of hours before now; the first is the default."""
PLOT_LINES = 6
"""The most policies in the plot: those with the highest usage."""
TABLE_ROWS = 12
"""The most rows of the table."""
USUAL_INTERVAL_S = 60
"""Seconds of the interval of a history with one sample."""
LONGEST_STEP = 2.5
"""The most intervals between two samples: after a longer time the use before the sample is unknown."""


@dataclass(frozen=True, slots=True)
class PlotLine:
    """The usage of one policy or of the pool: at each time, and the highest since the time before."""

    name: str
    values: UnitSeries
    peaks: UnitSeries


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """The mean and the highest usage of each line in a stretch of time."""

    from_ms: int
    cells: tuple[tuple[float | None, int | None], ...]


@dataclass(frozen=True, slots=True)
class HistoryView:
    """The usage history of one key of a pool, for the page."""

    key: str
    keys: tuple[str, ...]
    hours: int
    windows: tuple[int, ...]
    text: str
    names: tuple[str, ...]
    rows: tuple[HistoryRow, ...]
    plot_url: str
    """The URL of the data of the plot."""


def history_view(context: PageContext, pool: Pool) -> HistoryView | None:
    """Return the usage history of the chosen key and hours of a pool; None while there are no samples."""
    key, hours = _key(pool, context.http_request.args.get("key")), _hours(context)
    history = context.services.dashboard_queries.get_history(context.workspace, pool.name)
    if key is None or not history:
        return None
    indices = _indices_since(history, _now_ms(context) - hours * 3_600_000)
    lines = _lines(history, key, indices)
    times_ms = [history.times_ms[index] for index in indices]
    return HistoryView(
        key=key,
        keys=tuple(sorted(pool.capacity)),
        hours=hours,
        windows=WINDOWS_H,
        text=_sentence(times_ms, hours, key, lines),
        names=tuple(line.name for line in lines),
        rows=tuple(_rows(times_ms, lines)),
        plot_url=context.link(f"/pools/{pool.name}/history", key=key, hours=hours),
    )


def plot_response(context: PageContext, pool: Pool) -> Response:
    """Return the points of a plot of steps, with times in seconds: at each time the highest use since the time before."""
    key, hours = _key(pool, context.http_request.args.get("key")), _hours(context)
    until_ms = _now_ms(context)
    since_ms = until_ms - hours * 3_600_000
    history = context.services.dashboard_queries.get_history(context.workspace, pool.name)
    points: list[tuple[int, int | None]] = []
    series: list[dict[str, Any]] = []
    if key and history:
        indices = _indices_since(history, since_ms)
        times_s = [history.times_ms[index] // 1000 for index in indices]
        points = list(_step_points(times_s))
        lines = [(line.name, line.peaks) for line in _lines(history, key, indices)]
        capacity = history.capacity.get(key, ())
        lines.append(("capacity", tuple(capacity[index] for index in indices) if capacity else ()))
        series = [
            {"name": name, "values": [None if index is None else values[index] for _, index in points]}
            for name, values in lines
            if values
        ]
    return jsonify(
        key=key,
        since=since_ms // 1000,
        until=until_ms // 1000,
        times=[max(at_s, since_ms // 1000) for at_s, _ in points],
        series=series,
    )


def _now_ms(context: PageContext) -> int:
    return context.services.dashboard_queries.read_clock(context.workspace)


def _key(pool: Pool, requested_key: str | None) -> str | None:
    if requested_key in pool.capacity:
        return requested_key
    cost_key = str(pool.settings.get("cost_key"))
    return cost_key if cost_key in pool.capacity else min(pool.capacity, default=None)


def _hours(context: PageContext) -> int:
    text = context.http_request.args.get("hours")
    return next((hours for hours in WINDOWS_H if text == str(hours)), WINDOWS_H[0])


def _indices_since(history: UsageHistory, since_ms: int) -> range:
    """Return the indices of the samples after a time."""
    count = sum(at_ms > since_ms for at_ms in history.times_ms)  # times only rise
    return range(len(history.times_ms) - count, len(history.times_ms))


def _step_points(times_s: Sequence[int]) -> Iterator[tuple[int, int | None]]:
    """Yield the times of a plot, each with the index of its sample; None ends a line.

    The value of a point holds from the point before. If there is no sample within LONGEST_STEP intervals before a sample, it
    gets a second point one interval earlier: the use before that is unknown.
    """
    interval_s = round(median([later - earlier for earlier, later in pairwise(times_s)] or [USUAL_INTERVAL_S]))
    before_s: int | None = None
    for index, at_s in enumerate(times_s):
        if before_s is None or at_s - before_s > LONGEST_STEP * interval_s:
            if before_s is not None:
                yield before_s + 1, None
            yield at_s - interval_s, index
        yield at_s, index
        before_s = at_s


def _lines(history: UsageHistory, key: str, indices: range) -> list[PlotLine]:
    """Return the line of the pool, then those of the policies with the highest usage."""
    peaks = {name: tuple(by_key[key][index] for index in indices) for name, by_key in history.peaks.items() if key in by_key}
    totals = {name: sum(value or 0 for value in values) for name, values in peaks.items() if name != POOL_SERIES}
    names = sorted((name for name, total in totals.items() if total), key=lambda name: (-totals[name], name))[:PLOT_LINES]
    return [
        PlotLine(name, tuple(history.series[name][key][index] for index in indices), peaks[name])
        for name in (POOL_SERIES, *names)
        if name in peaks
    ]


def _sentence(times_ms: Sequence[int], hours: int, key: str, lines: Sequence[PlotLine]) -> str:
    parts = []
    for line in lines:
        mean, most = _mean(line.values), _most(line.peaks)
        if mean is not None and most is not None:
            name = "all policies together" if line.name == POOL_SERIES else line.name.removeprefix("orchestrator/")
            parts.append(f"{name} {mean:.1f} on average and {most:,} at most")
    minutes = max(1, round((times_ms[-1] - times_ms[0]) / 60_000)) if times_ms else 60 * hours
    span = f"{minutes} min" if minutes < 60 * hours - 5 and minutes < 120 else f"{min(hours, round(minutes / 60))} h"
    return f"Of {key}, in the last {span}: {'; '.join(parts) or 'no data'}."


def _rows(times_ms: Sequence[int], lines: Sequence[PlotLine]) -> Iterator[HistoryRow]:
    """Yield the rows of the table, the newest first."""
    step = max(1, -(-len(times_ms) // TABLE_ROWS))
    for until in range(len(times_ms), 0, -step):
        stretch = slice(max(0, until - step), until)
        yield HistoryRow(
            times_ms[stretch.start], tuple((_mean(line.values[stretch]), _most(line.peaks[stretch])) for line in lines)
        )


def _mean(series: UnitSeries) -> float | None:
    values = [value for value in series if value is not None]
    return sum(values) / len(values) if values else None


def _most(series: UnitSeries) -> int | None:
    return max((value for value in series if value is not None), default=None)
