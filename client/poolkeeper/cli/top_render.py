"""How `poolkeeper top` draws what it sees: lines of words, each with a style, for a terminal as for a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

from poolkeeper import formatting
from poolkeeper.cli.top_data import Close, Sight

Line: TypeAlias = "list[Word]"


class Word(NamedTuple):
    """Some text and how it looks."""

    text: str
    style: str = ""


PARTS = (("in share", "green"), ("borrowed", "yellow"), ("held", "magenta"), ("free", "dim"))
"""The parts of a bar: what is used within shares, beyond them, kept for somebody who waits, and left."""
BLOCKS, PLAIN = "█▓░·", "#+~."
"""How they are drawn, and where there are no such characters."""
BAR = range(10, 41)
"""How long a bar is, at least and at most."""
BESIDE = 56
"""What the numbers beside a bar take."""
VERDICTS = {
    "no_capacity": "no capacity",
    "held": "kept for others",
    "behind": "behind the first",
    "over_limit": "at its limit",
    "over_reserved": "its fixed share is used up",
    "group_limit": "its group is at its limit",
    "waiting_for_victims": "others leave for it",
}


class Picture:
    """Draws, for so many columns, in blocks or in plain characters; of each pool so many policies at most, if that is said."""

    def __init__(self, width: int, *, plain: bool, now: datetime | None = None, policies: int | None = None) -> None:
        self._policies = policies
        self._bar = min(max(width - BESIDE, BAR[0]), BAR[-1])
        self._marks, self._now = PLAIN if plain else BLOCKS, now or datetime.now(UTC)

    def pools(self, sight: Sight, chosen: str | None = None) -> Iterator[tuple[str, list[Line]]]:
        """The lines of each pool, by its name; the chosen one is marked."""
        for number, pool in enumerate(sight.pools, start=1):
            name = str(pool["name"])
            lines = [self._heading(pool, number, marked=name == chosen), *self._bars(pool)]
            if name in sight.close:
                lines += self._closely(pool, sight.close[name])
            yield name, lines

    def legend(self) -> Line:
        """What the parts of a bar mean."""
        words = [Word(f"{mark} {name}  ", style) for mark, (name, style) in zip(self._marks, PARTS, strict=True)]
        return [*words[:-1], Word(words[-1].text.rstrip(), words[-1].style)]

    def _heading(self, pool: Mapping[str, Any], number: int, *, marked: bool) -> Line:
        counts = f"{pool['active_count']} running, {pool['queue_length']} waiting"
        name = f"{number} {formatting.one_line(pool['name'])}"
        about = f"  {formatting.one_line(pool['description'])}" if pool["description"] else ""
        return [Word(name, "bold reverse" if marked else "bold"), Word(f"  {counts}"), Word(about, "dim")]

    def _bars(self, pool: Mapping[str, Any]) -> Iterator[Line]:
        width = max(len(key) for key in pool["capacity"])
        for key, capacity in pool["capacity"].items():
            used, free = pool["used"].get(key, 0), pool["free"].get(key, 0)
            borrowed = min(pool["borrowed"].get(key, 0), used)
            held = min(pool["held"].get(key, 0), free)
            numbers = f" {used} of {capacity}: {used - borrowed} in share, {borrowed} borrowed, {held} held, {free - held} free"
            parts = (used - borrowed, borrowed, held, free - held)
            yield [Word(f"  {formatting.one_line(key):<{width}} "), *self._drawn(parts), Word(numbers)]

    def _drawn(self, parts: Sequence[int]) -> Iterator[Word]:
        for (_, style), mark, cells in zip(PARTS, self._marks, divided(parts, self._bar), strict=True):
            if cells:
                yield Word(mark * cells, style)

    def _closely(self, pool: Mapping[str, Any], close: Close) -> Iterator[Line]:
        shown = self._shown(close.policies)
        rows = [_policy(policy, list(pool["capacity"])) for policy in shown]
        yield from (self._row(row, "  ") for row in _aligned(rows))
        if len(shown) < len(close.policies):
            yield [Word(f"  and {len(close.policies) - len(shown)} more policies", "dim")]
        waiting = [self._waiter(pool["name"], request) for request in close.queue]
        yield from (self._row(row, "  ", last="dim") for row in _aligned(waiting))
        if pool["queue_length"] > len(waiting) > 0:
            yield [Word(f"  and {pool['queue_length'] - len(waiting)} more", "dim")]

    def _shown(self, policies: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """All, or as many as there is room for: rather those who use something or wait, else in their order."""
        if self._policies is None or len(policies) <= self._policies:
            return policies
        idle = [not policy["queued"] and not any(policy["used"].values()) for policy in policies]
        first = sorted(range(len(policies)), key=lambda at: (idle[at], at))[: self._policies]
        return [policies[at] for at in sorted(first)]

    def _row(self, cells: Sequence[str], lead: str, last: str = "") -> Line:
        *words, end = cells
        return [Word(lead + "".join(f"{word}  " for word in words)), Word(end.rstrip(), last)]

    def _waiter(self, pool: str, request: Mapping[str, Any]) -> list[str]:
        place = (request["position"] or {}).get(pool, "-")
        waited = formatting.age(request["submitted_at"], self._now)
        return [
            f"{place}.",
            request["id"],
            formatting.component(request),
            formatting.asks(request),
            waited,
            self._reason(request["explained"]),
        ]

    def _reason(self, explained: Mapping[str, Any] | None) -> str:
        if explained is None:
            return ""
        short = [
            f"{numbers['needed']} {key} needed, {numbers['free'] - numbers['held_for_others']} free"
            for key, numbers in explained["keys"].items()
            if numbers["needed"] > numbers["free"] - numbers["held_for_others"]
        ]
        verdict = VERDICTS.get(explained["verdict"], str(explained["verdict"]))
        return "; ".join([formatting.one_line(": ".join([verdict, *short[:1]])), *self._estimate(explained["estimated_start"])])

    def _estimate(self, foreseen: Mapping[str, Any] | None) -> list[str]:
        if foreseen is None:
            return []
        latest = f", by {self._until(foreseen['latest'])}" if foreseen["latest"] else ""
        return [f"likely in {self._until(foreseen['likely'])}{latest}"]

    def _until(self, at: str) -> str:
        """How long until then, roughly."""
        left_s = max(0, round((formatting.moment(at) - self._now).total_seconds()))
        for unit, length in (("h", 3600), ("m", 60)):
            if left_s >= 2 * length:
                return f"{round(left_s / length)}{unit}"
        return f"{left_s}s"


def _policy(policy: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    """Its columns: who, of each key what it uses, and how many wait."""
    told = [
        _use(policy, key) for key in keys if policy["used"].get(key) or policy["reserved"].get(key) or key in policy["limit"]
    ]
    return [formatting.component(policy), f"{policy['queued']} waiting", "; ".join(told) or "uses nothing"]


def _use(policy: Mapping[str, Any], key: str) -> str:
    """`gpu 6: 4 of 4 reserved, 2 borrowed, limit 8`."""
    used, reserved, limit = policy["used"].get(key, 0), policy["reserved"].get(key, 0), policy["limit"].get(key)
    said = [f"{min(used, reserved)} of {reserved} reserved"] if reserved else []
    said += [f"{used - reserved} borrowed"] if used > reserved else []
    said += [] if limit is None else [f"limit {limit}"]
    return f"{key} {used}" + (f": {', '.join(said)}" if said else "")


def _aligned(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    clean = [[formatting.one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*clean, strict=True)]
    return [[f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)] for row in clean]


def divided(parts: Sequence[int], cells: int) -> list[int]:
    """So many cells among the parts, as nearly as can be; what there is has one at least, if there are enough."""
    total = sum(parts)
    if not total:
        return [0] * len(parts)
    given = [max(1, part * cells // total) if part else 0 for part in parts]
    while sum(given) != cells:
        step = 1 if sum(given) < cells else -1
        off = [
            step * (part * cells / total - one) if one + step > 0 and part else float("-inf")
            for part, one in zip(parts, given, strict=True)
        ]
        if max(off) == float("-inf"):
            break
        given[off.index(max(off))] += step
    return given
