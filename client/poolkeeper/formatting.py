"""Values as people read them: amounts, ages, durations, names; and nothing that could steer a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

UNIT_SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
DEFAULT_TYPE = "orchestrator"


def printable(text: str) -> str:
    """The text without characters that move the cursor or change colours; line breaks stay."""
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)


def one_line(value: Any) -> str:
    """Anything as one printable line."""
    return printable(" ".join(str(value).split()))


def amounts(resources: Mapping[str, int] | None, *, all_keys: bool = True) -> str:
    """Amounts as they are typed: `gpu=2,mcpu=4000`. Without `all_keys` the `step_run` everybody asks is left out."""
    visible = {key: amount for key, amount in (resources or {}).items() if all_keys or key != "step_run"}
    return ",".join(f"{key}={amount}" for key, amount in visible.items()) or "-"


def requested_amounts(request: Mapping[str, Any]) -> str:
    """What a request asks."""
    return amounts(request["resources"], all_keys=len(request["resources"]) == 1)


def pairs(values: Mapping[str, Any] | None) -> str:
    """Settings and labels: `queueing=strict patience_s=none requeue_failed_checkpoint=true`."""
    return " ".join(f"{key}={_format_value(value)}" for key, value in (values or {}).items()) or "-"


def _format_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return amounts(value) if value else "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")  # as many places as any setting has, and no exponent
    return "none" if value is None else str(value)


def component(document: Mapping[str, Any]) -> str:
    """Who asks, as it is typed: `team`, or `step_operator/team` if its type is not the usual one."""
    name, kind = document["component"], document.get("component_type", DEFAULT_TYPE)
    return str(name) if kind == DEFAULT_TYPE else f"{kind}/{name}"


def duration(seconds: int | None) -> str:
    """A duration as it is typed: `1h30m`; `none` for none."""
    if seconds is None:
        return "none"
    parts = []
    for unit, length in UNIT_SECONDS.items():
        count, seconds = divmod(seconds, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def age(time: str | None, now: datetime | None = None) -> str:
    """How long ago that was, roughly: `42s`, `5m`, `3h`, `2d`."""
    if not time:
        return "-"
    seconds = max(0, int(((now or datetime.now(UTC)) - parse_time(time)).total_seconds()))
    for unit, length, least in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172_800)):
        if seconds < least:
            return f"{seconds // length}{unit}"
    return f"{seconds // 86_400}d"


def parse_time(text: str) -> datetime:
    """A time of the API."""
    return datetime.fromisoformat(text)


def timestamp(time: str | None) -> str:
    """A time of the API as people read it, to the second and in UTC."""
    return f"{parse_time(time).astimezone(UTC):%Y-%m-%d %H:%M:%S}Z" if time else "-"


def reason(request: Mapping[str, Any]) -> str:
    """Why a request is where it is, in a sentence."""
    document = request.get("reason")
    if document and document.get("code") == "no_policy":
        return f"no pool has a policy for {component(request)}"
    return one_line(document["message"]) if document else ""


def position(request: Mapping[str, Any]) -> str:
    """Where a waiter stands: `2 in gpus`, in several pools `2 in gpus, 1 in spare`."""
    return ", ".join(f"{number} in {pool}" for pool, number in (request.get("position") or {}).items())


def times(count: int) -> str:
    """How often: nothing for never."""
    return {0: "", 1: "once", 2: "twice"}.get(count, f"{count} times")


def directive(document: Mapping[str, Any]) -> str:
    """What a holder is asked to do: `checkpoint until 2026-01-31 12:00:00Z`; nothing while it may go on."""
    value = document.get("directive")
    if value in (None, "continue"):
        return ""
    return f"{value} until {timestamp(document['deadline'])}" if document.get("deadline") else str(value)


def plural(count: int, word: str) -> str:
    """`1 policy`, `2 policies`."""
    if count == 1:
        return f"1 {word}"
    return f"{count} {word[:-1]}ies" if word.endswith("y") else f"{count} {word}s"
