"""The output of `poolkeeper top`: lines of spans, each with a style, for a terminal and for a pipe."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

from poolkeeper import formatting
from poolkeeper.cli.top_data import PoolDetail, TopData
from poolkeeper.cli.top_rows import TITLES, aligned, column_widths, cut, running_row, waiting_row

Line: TypeAlias = "list[Span]"


class Span(NamedTuple):
    """Text and its style."""

    text: str
    style: str = ""


BAR_PARTS = (("in share", "green"), ("borrowed", "yellow"), ("held", "magenta"), ("free", "dim"))
"""The parts of a bar, each with its style: units used in share, borrowed, held for waiters, and free."""
BLOCKS, PLAIN = "█▓░·", "#+~."
"""The characters of the parts, and those for an output without such characters."""
MAX_COMPONENT_WIDTH = 24
"""The most characters of the name of a component beside its policy."""
BAR_WIDTHS = range(10, 41)
"""The range of the length of a bar."""
NUMBERS_WIDTH = 56
"""The width of the numbers beside a bar."""
VERDICTS = {
    "no_capacity": "no capacity",
    "held": "held for others",
    "behind": "behind the first",
    "over_limit": "at its limit",
    "over_reserved": "its fixed share is used up",
    "group_limit": "its group is at its limit",
    "waiting_for_victims": "waits for victims",
}


class TopView:
    """The view of the data in a width, in blocks or plain characters, with bounded numbers of policies and requests a pool."""

    def __init__(
        self,
        width: int,
        *,
        plain: bool,
        now: datetime | None = None,
        max_policies: int | None = None,
        max_requests: int | None = None,
    ) -> None:
        self._width, self._ellipsis = width, "~" if plain else "…"
        self._max_policies, self._max_requests = max_policies, max_requests
        self._marks, self._now = PLAIN if plain else BLOCKS, now or datetime.now(UTC)

    def pools(self, data: TopData, selected_pool: str | None = None) -> Iterator[tuple[str, list[Line]]]:
        """Yield the name and the lines of each pool; the selected one is marked."""
        for number, pool in enumerate(data.pools, start=1):
            name = str(pool["name"])
            lines = [self._heading(pool, number, is_selected=name == selected_pool), *self._bars(pool)]
            if name in data.details:
                lines += self._detail(pool, data.details[name])
            yield name, [self.fit(line) for line in lines]

    def fit(self, line: Line) -> Line:
        """Return a line that is not wider than the screen."""
        room, spans = self._width, []
        for text, style in line:
            text = cut(text, room, self._ellipsis) if len(text) > room else text
            spans += [Span(text, style)] if room > 0 else []
            room -= len(text)
        return spans

    def legend(self) -> Line:
        """Return the legend of the bars."""
        words = [Span(f"{mark} {name}  ", style) for mark, (name, style) in zip(self._marks, BAR_PARTS, strict=True)]
        return [*words[:-1], Span(words[-1].text.rstrip(), words[-1].style)]

    def _heading(self, pool: Mapping[str, Any], number: int, *, is_selected: bool) -> Line:
        counts = f"{pool['active_count']} running, {pool['queue_length']} waiting"
        name = f"{number} {formatting.one_line(pool['name'])}"
        about = f"  {formatting.one_line(pool['description'])}" if pool["description"] else ""
        return [Span(name, "bold reverse" if is_selected else "bold"), Span(f"  {counts}"), Span(about, "dim")]

    def _bars(self, pool: Mapping[str, Any]) -> Iterator[Line]:
        key_width, lines = max(map(len, pool["capacity"])), {key: _units(pool, key) for key in pool["capacity"]}
        texts = {key: _units_text(pool, key, units) for key, units in lines.items()}
        room = min(self._width - NUMBERS_WIDTH, self._width - key_width - 3 - max(map(len, texts.values())))
        bar_width = min(max(room, BAR_WIDTHS[0]), BAR_WIDTHS[-1])
        for key, units in lines.items():
            yield [Span(f"  {formatting.one_line(key):<{key_width}} "), *self._bar_spans(units, bar_width), Span(texts[key])]

    def _bar_spans(self, parts: Sequence[int], bar_width: int) -> Iterator[Span]:
        for (_, style), mark, cells in zip(BAR_PARTS, self._marks, divide_cells(parts, bar_width), strict=True):
            if cells:
                yield Span(mark * cells, style)

    def _detail(self, pool: Mapping[str, Any], detail: PoolDetail) -> Iterator[Line]:
        policies = self._visible_policies(detail.policies)
        for row in _aligned([_policy(policy, list(pool["capacity"]), self._ellipsis) for policy in policies]):
            yield [Span(f"  {'  '.join(row).rstrip()}")]
        if len(policies) < len(detail.policies):
            yield [Span(f"  and {len(detail.policies) - len(policies)} more policies", "dim")]
        yield from self._requests(pool, detail)

    def _requests(self, pool: Mapping[str, Any], detail: PoolDetail) -> Iterator[Line]:
        """Yield the allocations and the waiters, each below their titles, with the reason below a waiter."""
        allocations, waiters = detail.running[: self._max_requests], detail.queue[: self._max_requests]
        running = [running_row(request, self._now) for request in allocations]
        waiting = [waiting_row(request, pool["name"], self._now) for request in waiters]
        reasons = [self._reason(request["explained"]) for request in waiters]
        tables = [
            (["RUNNING", *TITLES], running, [""] * len(running), pool["active_count"]),
            (["WAITING", *TITLES], waiting, reasons, pool["queue_length"]),
        ]
        widths = column_widths([row for titles, rows, _, _ in tables if rows for row in (titles, *rows)], self._width - 2)
        for titles, rows, lines, count in tables:
            if rows:
                yield [Span(f"  {aligned(titles, widths, self._ellipsis)}", "dim")]
            for row, reason in zip(rows, lines, strict=True):
                yield [Span(f"  {aligned(row, widths, self._ellipsis)}")]
                yield from ([Span(f"      {line}", "dim")] for line in textwrap.wrap(reason, self._width - 6))
            if count > len(rows) > 0:
                yield [Span(f"  and {count - len(rows)} more", "dim")]

    def _visible_policies(self, policies: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Return all policies, or as many as fit: first those with usage or queued requests, in their order."""
        if self._max_policies is None or len(policies) <= self._max_policies:
            return policies
        idle = [not policy["queued"] and not any(policy["used"].values()) for policy in policies]
        first = sorted(range(len(policies)), key=lambda index: (idle[index], index))[: self._max_policies]
        return [policies[index] for index in sorted(first)]

    def _reason(self, explanation: Mapping[str, Any] | None) -> str:
        if explanation is None:
            return ""
        shortages = [
            f"{numbers['needed']} {key} needed, {numbers['free'] - numbers['held_for_others']} free"
            for key, numbers in explanation["keys"].items()
            if numbers["needed"] > numbers["free"] - numbers["held_for_others"]
        ]
        verdict = VERDICTS.get(explanation["verdict"], str(explanation["verdict"]))
        return "; ".join(
            [formatting.one_line(": ".join([verdict, *shortages[:1]])), *self._estimate(explanation["estimated_start"])]
        )

    def _estimate(self, estimate: Mapping[str, Any] | None) -> list[str]:
        if estimate is None:
            return []
        latest = f", by {self._until(estimate['latest'])}" if estimate["latest"] else ""
        return [f"likely in {self._until(estimate['likely'])}{latest}{formatting.few_run_times(estimate)}"]

    def _until(self, time: str) -> str:
        """Return the time until a moment, roughly."""
        left_s = max(0, round((formatting.parse_time(time) - self._now).total_seconds()))
        for unit, length in (("h", 3600), ("m", 60)):
            if left_s >= 2 * length:
                return f"{round(left_s / length)}{unit}"
        return f"{left_s}s"


def _units(pool: Mapping[str, Any], key: str) -> tuple[int, int, int, int]:
    """Return the parts of a bar: units in share, borrowed, held and free."""
    used, free = pool["used"].get(key, 0), pool["free"].get(key, 0)
    borrowed, hold = min(pool["borrowed"].get(key, 0), used), min(pool["held"].get(key, 0), free)
    return used - borrowed, borrowed, hold, free - hold


def _units_text(pool: Mapping[str, Any], key: str, units: tuple[int, int, int, int]) -> str:
    share, borrowed, hold, free = units
    total = f" {share + borrowed} of {pool['capacity'][key]}"
    return f"{total}: {share} in share, {borrowed} borrowed, {hold} held, {free} free"


def _policy(policy: Mapping[str, Any], keys: Sequence[str], ellipsis: str) -> list[str]:
    """Return the cells of a policy: component, queued requests, and usage of each key."""
    usage = [
        _use(policy, key) for key in keys if policy["used"].get(key) or policy["reserved"].get(key) or key in policy["limit"]
    ]
    component = cut(formatting.component(policy), MAX_COMPONENT_WIDTH, ellipsis)
    return [component, f"{policy['queued']} waiting", "; ".join(usage) or "uses nothing"]


def _use(policy: Mapping[str, Any], key: str) -> str:
    """Return the use of a key: `gpu 6: 4 of 4 reserved, 2 borrowed, limit 8`."""
    used, reserved, limit = policy["used"].get(key, 0), policy["reserved"].get(key, 0), policy["limit"].get(key)
    if policy.get("policies") is not None:  # a template: the use is that of all its instances, the bounds are for each
        bounds = [*([f"{reserved} reserved"] if reserved else []), *([f"limit {limit}"] if limit is not None else [])]
        return f"{key} {used}" + (f": {', '.join(bounds)} each" if bounds else "")
    parts = [f"{min(used, reserved)} of {reserved} reserved"] if reserved else []
    parts += [f"{used - reserved} borrowed"] if used > reserved else []
    parts += [] if limit is None else [f"limit {limit}"]
    return f"{key} {used}" + (f": {', '.join(parts)}" if parts else "")


def _aligned(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    clean = [[formatting.one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*clean, strict=True)]
    return [[f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)] for row in clean]


def divide_cells(parts: Sequence[int], cells: int) -> list[int]:
    """Divide the cells among the parts in proportion. A part above 0 gets at least one cell, if there are enough."""
    total = sum(parts)
    if not total:
        return [0] * len(parts)
    widths = [max(1, part * cells // total) if part else 0 for part in parts]
    while sum(widths) != cells:
        step = 1 if sum(widths) < cells else -1
        errors = [
            step * (part * cells / total - width) if width + step > 0 and part else float("-inf")
            for part, width in zip(parts, widths, strict=True)
        ]
        if max(errors) == float("-inf"):
            break
        widths[errors.index(max(errors))] += step
    return widths
