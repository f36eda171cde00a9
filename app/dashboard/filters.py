"""The Jinja filters for times, amounts and names. A time has two forms, absolute and relative."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from datetime import UTC, datetime

from markupsafe import Markup

from app.domain import request_origin
from app.domain.models import Request, TimelineEntry

STEPS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))

WAIT_REASONS: Mapping[str, str] = {
    "waiting_for_victims": "waits for victims",
    "over_limit": "over its limit",
    "over_reserved": "over its reserved share",
    "group_limit": "group limit",
    "no_capacity": "no capacity",
    "held": "held for others",
    "behind": "behind others",
}


DISCIPLINES: Mapping[str, str] = {"reserved": "by shares", "classes": "by class", "fair_share": "fair share"}
"""Discipline → its name on pages. The word `reserved` beside a pool would mean that the pool is taken."""


def moment(at_ms: int | None) -> Markup:
    """Return a time in UTC, with the day if it is not today. The title has the date. A script makes both local times."""
    if at_ms is None:
        return Markup('<span class="none">–</span>')
    time = datetime.fromtimestamp(at_ms / 1000, UTC)
    day = "" if time.date() == datetime.now(UTC).date() else f"{time:%d %b} "
    return Markup('<time datetime="{}" data-ms="{}" title="{}">{}</time>').format(
        f"{time:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03}Z", at_ms, f"{time:%-d %b %Y, %H:%M:%S} UTC", f"{day}{time:%H:%M:%S}"
    )


def relative(at_ms: int | None, now_ms: int) -> Markup:
    """Return the distance of a time from now. A script keeps it up to date."""
    if at_ms is None:
        return Markup("")
    return Markup('<span class="relative" data-relative="{}">{}</span>').format(at_ms, distance(at_ms - now_ms))


def elapsed(since_ms: int, now_ms: int) -> Markup:
    """Return the time that has passed since a moment. A script keeps it up to date."""
    return Markup('<span class="elapsed" data-elapsed="{}">{}</span>').format(
        since_ms, duration(max(0, now_ms - since_ms) // 1000)
    )


def distance(ms: int) -> str:
    """Return a distance in time as text: `in 4 min`, `12 s ago`."""
    text = duration(abs(ms) // 1000)
    return f"in {text}" if ms > 0 else f"{text} ago"


def duration(seconds: int) -> str:
    """Return a duration in its two greatest units: `2 h 5 min`, `40 s`."""
    steps: list[tuple[int, str]] = []
    for size, name in STEPS:
        count, rest = divmod(seconds, size)
        if count or steps or size == 1:
            steps.append((count, name))
            seconds = rest
    return " ".join(f"{count} {name}" for number, (count, name) in enumerate(steps[:2]) if count or not number)


def units(amounts: Mapping[str, int]) -> str:
    """Return amounts as text: `2 gpu, 4,000 mcpu`."""
    texts = [f"{amount:,} {key}" for key, amount in amounts.items() if key != "step_run"]
    return ", ".join(texts) or "a slot"


def component(component_id: str) -> str:
    """Return `type/name` of a component, or its name alone if the type is the default."""
    kind, _, name = component_id.rpartition("/")
    return name if kind in ("", "orchestrator") else component_id


def preemptions(request: Request) -> str:
    """Return the number of preemptions of a request and of retries left: `2 times, 1 retry left`."""
    times = "once" if request.preemptions == 1 else f"{request.preemptions} times"
    retries = request.retries_left
    if retries is None:
        return f"{times}, retries without bound"
    return f"{times}, {retries or 'no'} {'retry' if retries < 2 else 'retries'} left"


def wait_reason(code: str) -> str:
    """Return a wait reason in a few words."""
    return WAIT_REASONS.get(code, code.replace("_", " "))


def discipline(name: str) -> str:
    """Return the name of a discipline for people."""
    return DISCIPLINES.get(name, spaced(name))


def title(request: Request) -> str:
    """Return the name of a request, else its command, else its task, else an empty text."""
    return request_origin.title(request.name, request.labels)


def owner(request: Request) -> str:
    """Return `user@host` of a request, or the part that is there."""
    return request_origin.owner(request.labels)


def other_labels(request: Request) -> dict[str, str]:
    """Return the labels that title and owner do not show."""
    keys = {"user", "host"} | {key for key in ("command", "task") if request.labels.get(key) == title(request)}
    return {key: value for key, value in request.labels.items() if key not in keys}


def sentence(text: str) -> str:
    """Return a text with a capital first letter. The rest stays."""
    return text[:1].upper() + text[1:]


def spaced(word: str) -> str:
    """Return a code with spaces in place of underscores."""
    return word.replace("_", " ")


def work_end(record: Request | TimelineEntry) -> str:
    """Return the end of the work: `succeeded, exit 0`, `failed, SIGKILL`, `failed`; empty if the release had no outcome."""
    if not record.outcome or record.exit_code is None:
        return record.outcome or ""
    if record.exit_code >= 0:
        return f"{record.outcome}, exit {record.exit_code}"
    names = {int(each): each.name for each in signal.Signals}
    return f"{record.outcome}, {names.get(-record.exit_code, f'signal {-record.exit_code}')}"
