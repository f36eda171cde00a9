"""Values as people read them: amounts, ages, durations, names, without characters that control a terminal."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from poolkeeper.request_origin import short_id

UNIT_SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
DEFAULT_TYPE = "orchestrator"


def printable(text: str) -> str:
    """Return the text without characters that move the cursor or change colours; line breaks stay."""
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)


def one_line(value: Any) -> str:
    """Return any value as one printable line."""
    return printable(" ".join(str(value).split()))


def shorten(text: str, width: int = 40) -> str:
    """Return a text in at most this many characters, cut at the end of a word if one of its words fits."""
    text = one_line(text)
    if len(text) <= width:
        return text
    words = text[:width].rpartition(" ")[0].rstrip(" ,;:")
    return f"{words or text[: width - 1]}…"


def amounts(resources: Mapping[str, int] | None, *, all_keys: bool = True) -> str:
    """Return amounts as they are typed: `gpu=2,mcpu=4000`. Without `all_keys` the `step_run` of every request is left out."""
    visible = {key: amount for key, amount in (resources or {}).items() if all_keys or key != "step_run"}
    return ",".join(f"{key}={amount}" for key, amount in visible.items()) or "-"


def requested_amounts(request: Mapping[str, Any]) -> str:
    """Return the amounts of a request."""
    return amounts(request["resources"], all_keys=len(request["resources"]) == 1)


def pairs(values: Mapping[str, Any] | None) -> str:
    """Return settings or labels: `queueing=strict patience_s=none requeue_failed_checkpoint=true`."""
    return " ".join(f"{key}={format_value(value)}" for key, value in (values or {}).items()) or "-"


def format_value(value: Any) -> str:
    """Return a setting or a label as it is typed."""
    if isinstance(value, Mapping):
        return amounts(value) if value else "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")  # as many places as any setting has, and no exponent
    return "none" if value is None else str(value)


def component(document: Mapping[str, Any]) -> str:
    """Return a component as it is typed: `team`, or `step_operator/team` if its type is not the default."""
    name, kind = document["component"], document.get("component_type", DEFAULT_TYPE)
    return str(name) if kind == DEFAULT_TYPE else f"{kind}/{name}"


def duration(seconds: int | None) -> str:
    """Return a duration as it is typed: `1h30m`; `none` for none."""
    if seconds is None:
        return "none"
    parts = []
    for unit, length in UNIT_SECONDS.items():
        count, seconds = divmod(seconds, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def age(time: str | None, now: datetime | None = None) -> str:
    """Return the time since a moment, roughly: `42s`, `5m`, `3h`, `2d`."""
    if not time:
        return "-"
    seconds = max(0, int(((now or datetime.now(UTC)) - parse_time(time)).total_seconds()))
    for unit, length, least in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172_800)):
        if seconds < least:
            return f"{seconds // length}{unit}"
    return f"{seconds // 86_400}d"


def parse_time(text: str) -> datetime:
    """Return a time of the API."""
    return datetime.fromisoformat(text)


def timestamp(time: str | None) -> str:
    """Return a time of the API as people read it, to the second and in UTC."""
    return f"{parse_time(time).astimezone(UTC):%Y-%m-%d %H:%M:%S}Z" if time else "-"


def reason(request: Mapping[str, Any]) -> str:
    """Return the reason of a request's status as a sentence."""
    document = request.get("reason")
    message = one_line(document["message"]) if document else ""
    preemptor = request.get("preempted_by")
    return message.replace(preemptor, short_id(preemptor)) if preemptor else message


def few_run_times(estimate: Mapping[str, Any]) -> str:
    """Return the words after an estimate from few run times, ` (from 2 run times)`; an empty text for any other estimate."""
    if not estimate.get("is_rough"):
        return ""
    count = estimate.get("run_times") or 0
    return f" (from {plural(count, 'run time') if count else 'no run times'})"


def outcome(document: Mapping[str, Any]) -> str:
    """Return the end of the work: `succeeded, exit 0`, `failed, SIGKILL`, `failed`; empty if it has not ended by itself."""
    result, code = document.get("outcome") or "", document.get("exit_code")
    if code is None or not result:
        return result
    return f"{result}, {f'exit {code}' if code >= 0 else _signal_name(-code)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def position(request: Mapping[str, Any]) -> str:
    """Return the positions of a queued request: `2 in gpus`, in several pools `2 in gpus, 1 in spare`."""
    return ", ".join(f"{number} in {pool}" for pool, number in (request.get("position") or {}).items())


def waits(request: Mapping[str, Any]) -> str:
    """Return the reason of a wait from the answer to a submit, `: it needs 2 gpu, and 1 of 8 is free`; empty if unknown."""
    pools = (request.get("waits") or {}).get("pools") or []
    in_pool = [f"{pool['pool']}: {pool['sentence']}" if len(pools) > 1 else pool["sentence"] for pool in pools]
    return f": {one_line('; '.join(in_pool))}" if pools else ""


def times(count: int) -> str:
    """Return a number of times in words; an empty text for 0."""
    return {0: "", 1: "once", 2: "twice"}.get(count, f"{count} times")


def directive(document: Mapping[str, Any]) -> str:
    """Return the directive, `checkpoint until 2026-01-31 12:00:00Z`; an empty text for `continue`."""
    value = document.get("directive")
    if value in (None, "continue"):
        return ""
    return f"{value} until {timestamp(document['deadline'])}" if document.get("deadline") else str(value)


def plural(count: int, word: str) -> str:
    """Return `1 policy`, `2 policies`."""
    if count == 1:
        return f"1 {word}"
    return f"{count} {word[:-1]}ies" if word.endswith("y") else f"{count} {word}s"
