"""Dry runs: what a submit or a change of the pools would come to, told for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from poolkeeper import formatting
from poolkeeper.cli import output
from poolkeeper.cli.explanations import describe_pool

EFFECTS = {
    "granted": "would be granted",
    "victims": "would be preempted",
    "preemptible": "would lie beyond the share, and could be preempted",
    "reprieved": "would be called back, and would not have to leave any more",
    "rejected": "would be rejected, as it could never be granted any more",
    "ended": "would end",
}
"""List of the answer → what is said of who is in it."""
SHOWN = 10
PATIENCE_S = 20.0
"""How long to wait for an answer: longer than the service takes for one at most."""


def describe_ask(told: Mapping[str, Any]) -> None:
    """What a submit would come to."""
    click.echo(formatting.printable(sentence(told)))
    for pool in told["verdicts"]:
        describe_pool(pool)


def sentence(told: Mapping[str, Any]) -> str:
    """The same in a line."""
    outcome = told["outcome"]
    if outcome == "allocated":
        return f"would be allocated in {told['pool']} at once" if told["pool"] else "would be allocated at once"
    if outcome == "preempts":
        count = told["counts"]["victims"]
        named = f": {', '.join(told['victims'])}" if told["victims"] else ""
        return f"would be granted in {told['pool']} once {formatting.plural(count, 'allocation')} left for it{named}"
    if outcome == "rejected":
        return f"would be rejected: {formatting.one_line(told['reason']['message'])}"
    return "would be queued"


def effects(told: Mapping[str, Any]) -> Iterator[str]:
    """What a change would do to those who wait and hold units, a line for each kind; none if they would not notice."""
    counts: Mapping[str, int] = told["counts"]
    for name, said in EFFECTS.items():
        if count := counts.get(name, 0):
            shown = list(told[name])[:SHOWN]
            more = f" and {count - len(shown)} more" if count > len(shown) else ""
            yield f"  {formatting.plural(count, 'request')} {said}: {', '.join(shown)}{more}"


def show_ask(told: Mapping[str, Any]) -> None:
    """For people in full, for programs as it is."""
    output.one(told, str(told["outcome"]), lambda: describe_ask(told))
