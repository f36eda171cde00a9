"""A request in full, and its events in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from poolkeeper import formatting, request_origin
from poolkeeper.cli import output

EVENT_SENTENCES = {
    "submitted": "was submitted",
    "allocated": "was granted{in_pool}",
    "started": "was begun{in_pool}",
    "released": "gave its units back",
    "rejected": "was rejected",
    "expired": "expired",
    "cancelled": "left the queue",
    "preempting": "was told to leave{in_pool}{for_other}",
    "preempted": "was preempted{in_pool}{for_other}",
    "forced": "did not leave{in_pool} in time{for_other}, and its units were taken back",
    "reprieved": "may stay{in_pool} after all",
    "terminating": "was told to end now{in_pool}",
    "passed_on": "leaves{in_pool}{for_other} from now on",
    "clearing": "is to be granted{in_pool} once {victims} left",
}
"""Event → its words. An event that is not here is shown by its name."""

REASON_SENTENCES: dict[str, str] = {
    "no_policy": "no pool has a policy for its component",
    "unknown_pool": "it names a pool that does not exist",
    "missing_key": "it asks for a key that the pool does not have",
    "exceeds_capacity": "it asks for more than the pool has in all",
    "exceeds_limit": "it asks for more than the limit of its policy, or of a group above it",
    "exceeds_reserved": "it is not preemptible, and asks for more than is reserved",
    "too_many_tenants": "the template of its component has the most instances that it may have",
    "lease_lapsed": "no heartbeat came before its lease lapsed",
    "worker_lost": "the process of its work was lost",
    "not_started": "no worker started it before its start deadline",
    "not_polled": "no client polled it within its queue TTL",
    "dropped": "an operator dropped it",
    "priority": "the request it leaves for ranks higher",
    "reclaim": "the request it leaves for fits into what its policy has reserved",
    "starvation": "the request it leaves for has been below its fair share for too long",
    "aggressive_starvation": "the request it leaves for has been below its fair share for far too long",
    "limit": "its policy, a group above it or the pool was over its limit",
    "sensitive": "the request it leaves for has preemption class 10",
}
"""Code of a reason → its words, for lines that have only the code."""


def event_sentence(event: Mapping[str, Any]) -> str:
    """Return an event as a sentence."""
    words = {
        "in_pool": f" in {event['pool']}" if event.get("pool") else "",
        "for_other": f" for {_other(event)}" if event.get("by") else "",
        "victims": _victims(event),
    }
    template = EVENT_SENTENCES.get(event["event"], str(event["event"]))
    sentence = template.format_map(words)
    if (reason := event.get("reason")) and not event.get("victims") and event["event"] != "reprieved":
        sentence += f": {REASON_SENTENCES.get(reason, reason)}"
    elif end := formatting.outcome(event):
        sentence += f": {end}"
    if not event.get("by") or event.get("victims"):
        return sentence
    ranks = _rank(event.get("by_rank"), "{}") + _rank(event.get("rank"), " against {}")
    if "{for_other}" in template:
        return sentence + (f" ({ranks})" if ranks else "")
    return f"{sentence} (on account of {_other(event)}{f', {ranks}' if ranks else ''})"


def _other(event: Mapping[str, Any]) -> str:
    """Return the other request that an event names: its short id, its owner and its title."""
    origin = event.get("by_origin")
    return request_origin.short_id(event["by"]) + (f" {formatting.shorten(origin, 60)}" if origin else "")


def _victims(event: Mapping[str, Any]) -> str:
    victims = [
        f"{request_origin.short_id(victim['id'])}{_rank(victim.get('rank'), ' ({})')}" for victim in event.get("victims") or ()
    ]
    return f"{', '.join(victims) or 'others'} {'has' if len(victims) == 1 else 'have'}"


def _rank(rank: Mapping[str, Any] | None, words: str) -> str:
    return words.format(f"priority {rank['priority']} class {rank['preemption_class']}") if rank else ""


def describe(request: Mapping[str, Any]) -> None:
    """Print every field and event of a request."""
    output.show_fields(_facts(request))
    refusals = (request.get("reason") or {}).get("pools") or []
    if len(refusals) > 1:
        output.show_heading("What each pool said")
        for refusal in refusals:
            click.echo(f"  {formatting.one_line(refusal['message'])}")
    output.show_heading("Timeline")
    for event in request["timeline"]:
        click.echo(f"  {formatting.timestamp(event['at'])}  {formatting.one_line(event_sentence(event))}")


def _facts(request: Mapping[str, Any]) -> list[tuple[str, Any]]:
    is_allocated = request["status"] in ("allocated", "preempting")
    return [
        ("Request", request["id"]),
        ("Name", request.get("name")),
        ("Component", formatting.component(request)),
        ("Asks", formatting.requested_amounts(request)),
        ("Pools", ", ".join(request.get("pools") or ())),
        ("Status", request["status"]),
        ("Why", formatting.reason(request)),
        ("Outcome", formatting.outcome(request)),
        ("Pool", request["pool"]),
        ("Position", formatting.position(request)),
        ("Fence", request["fence"]),
        ("Lease", _lease(request, is_allocated=is_allocated)),
        ("Directive", formatting.directive(request)),
        ("Preemptible", f"yes, class {request['preemption_class']}" if request["preemptible"] else "no"),
        ("Checkpoint", _checkpoint(request)),
        ("Walltime", formatting.duration(request["walltime_s"]) if request["walltime_s"] else None),
        ("Retries", "without bound" if request["retries"] < 0 else f"{request['retries']}, {request['preemptions']} used"),
        ("Preempted", formatting.times(request["preemptions"])),
        ("Queue TTL", formatting.duration(request["queue_ttl_s"])),
        ("Resumes", request["checkpoint_reference"] or ("yes" if request["resume"] else None)),
        ("Preempted by", request["preempted_by"]),
        ("Task", request.get("task")),
        ("Labels", formatting.pairs(request["labels"]) if request["labels"] else None),
        ("Submitted", _time_and_age(request["submitted_at"])),
        ("Last polled", _time_and_age(request.get("polled_at"))),
        ("Granted", _time_and_age(request["granted_at"])),
        ("Begun", _time_and_age(request.get("started_at"))),
        ("Ended", _time_and_age(request["ended_at"])),
    ]


def _lease(request: Mapping[str, Any], *, is_allocated: bool) -> str:
    until = (
        f", until {formatting.timestamp(request['lease_expires_at'])}" if is_allocated and request["lease_expires_at"] else ""
    )
    return formatting.duration(request["lease_s"]) + until


def _checkpoint(request: Mapping[str, Any]) -> str | None:
    if request["checkpoint"] == "none":
        return None
    minutes = request.get("checkpoint_minutes")
    return str(request["checkpoint"]) + (f", {formatting.plural(minutes, 'minute')}" if minutes else "")


def _time_and_age(time: str | None) -> str | None:
    return f"{formatting.timestamp(time)} ({formatting.age(time)} ago)" if time else None
