"""Output of dry runs: the outcome of a submit, or the effect of a change of pools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from poolkeeper import formatting, request_origin
from poolkeeper.cli import output
from poolkeeper.cli.explanations import describe_pool

EFFECT_SENTENCES = {
    "granted": "would be granted",
    "victims": "would be preempted",
    "preemptible": "would lie beyond the share, and could be preempted",
    "reprieved": "would be called back, and would not have to leave any more",
    "rejected": "would be rejected, as it could never be granted any more",
    "ended": "would end",
}
"""List of the answer → the sentence about each request in it."""
MAX_SHOWN = 10
TIMEOUT_S = 20.0
"""The seconds to wait for an answer: more than the service takes at most."""


def describe_submit(outcome: Mapping[str, Any]) -> None:
    """Print the outcome of a submit."""
    click.echo(formatting.printable(sentence(outcome)))
    for pool in outcome["verdicts"]:
        describe_pool(pool)


def sentence(outcome: Mapping[str, Any]) -> str:
    """Return the outcome in one line."""
    kind = outcome["outcome"]
    if kind == "allocated":
        return f"would be allocated in {outcome['pool']} at once" if outcome["pool"] else "would be allocated at once"
    if kind == "preempts":
        count = outcome["counts"]["victims"]
        victims = f": {_short_ids(outcome['victims'])}" if outcome["victims"] else ""
        return f"would be granted in {outcome['pool']} once {formatting.plural(count, 'allocation')} left for it{victims}"
    if kind == "rejected":
        return f"would be rejected: {formatting.one_line(outcome['reason']['message'])}"
    return "would be queued"


def effects(effect: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each effect of a change on queued and allocated requests."""
    counts: Mapping[str, int] = effect["counts"]
    for name, sentence in EFFECT_SENTENCES.items():
        if count := counts.get(name, 0):
            requests = list(effect[name])[:MAX_SHOWN]
            more = f" and {count - len(requests)} more" if count > len(requests) else ""
            yield f"  {formatting.plural(count, 'request')} {sentence}: {_short_ids(requests)}{more}"


def _short_ids(requests: Iterable[str]) -> str:
    return ", ".join(request_origin.short_id(request) for request in requests)


def show_submit(outcome: Mapping[str, Any]) -> None:
    """Print the outcome: in words for people, as the document for programs."""
    output.show_item(outcome, str(outcome["outcome"]), lambda: describe_submit(outcome))
