"""A request in full, and what happened to it, told in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from poolkeeper import formatting
from poolkeeper.cli import output

SENTENCES = {
    "submitted": "was submitted",
    "allocated": "was granted{in_pool}",
    "started": "was begun{in_pool}",
    "released": "gave its units back",
    "rejected": "was rejected",
    "expired": "expired",
    "cancelled": "left the queue",
    "preempting": "was told to leave{in_pool}",
    "preempted": "was preempted{in_pool}",
    "forced": "did not leave{in_pool} in time, and its units were taken back",
    "reprieved": "may stay{in_pool} after all",
    "terminating": "was told to end now{in_pool}",
    "passed_on": "leaves{in_pool} for another one from now on",
    "clearing": "is to be granted{in_pool} once {victims} left",
}
"""Each event in words; one that is not here is told by its name."""

REASONS: dict[str, str] = {
    "no_policy": "no pool has a policy for its component",
    "missing_key": "it asks for a key that the pool does not have",
    "exceeds_capacity": "it asks for more than the pool has in all",
    "exceeds_limit": "it asks for more than the limit of its policy, or of a group above it",
    "exceeds_reserved": "it is not preemptible, and asks for more than is reserved",
    "lease_lapsed": "no heartbeat came before its lease lapsed",
    "worker_lost": "the process that did its work is gone",
    "not_started": "no worker began it in time",
    "not_polled": "nobody asked for it while it was queued",
    "dropped": "an operator dropped it",
    "priority": "the one it leaves for ranks higher",
    "reclaim": "the one it leaves for fits into what its policy has reserved",
    "starvation": "the one it leaves for has been below its fair share for too long",
    "aggressive_starvation": "the one it leaves for has been below its fair share for far too long",
    "limit": "its policy, a group above it or the pool was over its limit",
    "sensitive": "the one it leaves for is of class 10",
}
"""Each code of a reason in words, for lines that have the code alone."""


def told(line: Mapping[str, Any]) -> str:
    """A line of a story, or an event, as a sentence."""
    in_pool = f" in {line['pool']}" if line.get("pool") else ""
    said = SENTENCES.get(line["event"], str(line["event"])).format(in_pool=in_pool, victims=_victims(line))
    if (reason := line.get("reason")) and not line.get("victims") and line["event"] != "reprieved":
        said += f": {REASONS.get(reason, reason)}"
    return said + (f" (on account of {line['by']}{_ranks(line)})" if line.get("by") and not line.get("victims") else "")


def _victims(line: Mapping[str, Any]) -> str:
    named = [f"{victim['id']}{_rank(victim.get('rank'), ' ({})')}" for victim in line.get("victims") or ()]
    return f"{', '.join(named) or 'others'} {'has' if len(named) == 1 else 'have'}"


def _ranks(line: Mapping[str, Any]) -> str:
    return _rank(line.get("by_rank"), ", {}") + _rank(line.get("rank"), " against {}")


def _rank(rank: Mapping[str, Any] | None, words: str) -> str:
    return words.format(f"priority {rank['priority']} class {rank['preemption_class']}") if rank else ""


def describe(found: Mapping[str, Any]) -> None:
    """Everything there is to say of a request."""
    output.fields(_facts(found))
    refusals = (found.get("reason") or {}).get("pools") or []
    if len(refusals) > 1:
        output.heading("What each pool said")
        for refusal in refusals:
            click.echo(f"  {formatting.one_line(refusal['message'])}")
    output.heading("Story")
    for line in found["story"]:
        click.echo(f"  {formatting.clock(line['at'])}  {formatting.one_line(told(line))}")


def _facts(found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    holds = found["status"] in ("allocated", "preempting")
    return [
        ("Request", found["id"]),
        ("Component", formatting.component(found)),
        ("Asks", formatting.asks(found)),
        ("Status", found["status"]),
        ("Why", formatting.why(found)),
        ("Outcome", found.get("outcome")),
        ("Pool", found["pool"]),
        ("Position", formatting.position(found)),
        ("Fence", found["fence"]),
        ("Lease", _lease(found, holds=holds)),
        ("Directive", formatting.directive(found)),
        ("Preemptible", f"yes, class {found['preemption_class']}" if found["preemptible"] else "no"),
        ("Checkpoint", _checkpoint(found)),
        ("Walltime", formatting.duration(found["walltime_s"]) if found["walltime_s"] else None),
        ("Retries", "without bound" if found["retries"] < 0 else f"{found['retries']}, {found['preemptions']} used"),
        ("Preempted", formatting.times(found["preemptions"])),
        ("Queue TTL", formatting.duration(found["queue_ttl_s"])),
        ("Resumes", found["checkpoint_reference"] or ("yes" if found["resume"] else None)),
        ("Preempted by", found["preempted_by"]),
        ("Task", found.get("task")),
        ("Labels", formatting.pairs(found["labels"]) if found["labels"] else None),
        ("Submitted", _when(found["submitted_at"])),
        ("Granted", _when(found["granted_at"])),
        ("Begun", _when(found.get("started_at"))),
        ("Ended", _when(found["ended_at"])),
    ]


def _lease(found: Mapping[str, Any], *, holds: bool) -> str:
    until = f", until {formatting.clock(found['lease_expires_at'])}" if holds and found["lease_expires_at"] else ""
    return formatting.duration(found["lease_s"]) + until


def _checkpoint(found: Mapping[str, Any]) -> str | None:
    if found["checkpoint"] == "none":
        return None
    minutes = found.get("checkpoint_minutes")
    return str(found["checkpoint"]) + (f", {formatting.plural(minutes, 'minute')}" if minutes else "")


def _when(at: str | None) -> str | None:
    return f"{formatting.clock(at)} ({formatting.age(at)} ago)" if at else None
