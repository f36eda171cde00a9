"""How times, amounts and names are written on a page. Times are told twice: when, and how far that is from now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from markupsafe import Markup

STEPS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))

WAIT_REASONS: Mapping[str, str] = {
    "waiting_for_victims": "others leave for it",
    "over_limit": "over its limit",
    "over_reserved": "over its reserve",
    "group_limit": "group limit",
    "no_capacity": "no capacity",
    "held": "held for others",
    "behind": "behind others",
}


def moment(at_ms: int | None) -> Markup:
    """When: of today the time alone, else with its day; the title says all of it."""
    if at_ms is None:
        return Markup('<span class="none">–</span>')
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    day = "" if at.date() == datetime.now(UTC).date() else f"{at:%d %b} "
    return Markup('<time datetime="{}" data-ms="{}" title="{}">{}</time>').format(
        f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03}Z", at_ms, f"{at:%Y-%m-%d %H:%M:%S} UTC", f"{day}{at:%H:%M:%S}"
    )


def relative(at_ms: int | None, now_ms: int) -> Markup:
    """How far away a time is; a script counts on from there."""
    if at_ms is None:
        return Markup("")
    return Markup('<span class="relative" data-relative="{}">{}</span>').format(at_ms, distance(at_ms - now_ms))


def distance(ms: int) -> str:
    """`in 4 min`, `12 s ago`."""
    told = duration(abs(ms) // 1000)
    return f"in {told}" if ms > 0 else f"{told} ago"


def duration(seconds: int) -> str:
    """The two greatest steps of it: `2 h 5 min`, `40 s`."""
    told: list[tuple[int, str]] = []
    for size, name in STEPS:
        count, rest = divmod(seconds, size)
        if count or told or size == 1:
            told.append((count, name))
            seconds = rest
    return " ".join(f"{count} {name}" for number, (count, name) in enumerate(told[:2]) if count or not number)


def units(amounts: Mapping[str, int]) -> str:
    """`2 gpu, 4,000 mcpu`."""
    some = [f"{amount:,} {key}" for key, amount in amounts.items() if key != "step_run"]
    return ", ".join(some) or "a slot"


def component(named: str) -> str:
    """A component without its type, if that goes without saying."""
    kind, _, name = named.rpartition("/")
    return name if kind in ("", "orchestrator") else named


def wait_reason(code: str) -> str:
    """A verdict in a word or two."""
    return WAIT_REASONS.get(code, code.replace("_", " "))


def spaced(word: str) -> str:
    """A word of the program as one of people."""
    return word.replace("_", " ")
