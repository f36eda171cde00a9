"""What a task asks for: as its class says, unless the call does. What nobody says is left to the service's defaults."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from poolkeeper.request_body import ask

OPTIONS = (
    "component",
    "component_type",
    "resources",
    "settings",
    "preemptible",
    "preemption_class",
    "checkpoint",
    "checkpoint_minutes",
    "walltime_s",
    "lease_s",
    "labels",
    "preemption_retries",
    "redeliveries",
)
"""Attributes of a task's class, and options of a call."""

HEADER = "poolkeeper_ask"
"""The header in which the options of a call go with the message, so that a retry asks the same."""

LONGEST = 255
"""Characters of a label's text and of a task's name."""


def said(options: MutableMapping[str, Any], headers: Mapping[str, Any] | None) -> dict[str, Any]:
    """What this call says; taken out of its options, which Celery would take for properties of the message."""
    earlier = dict((headers or {}).get(HEADER) or {})
    return earlier | {name: options.pop(name) for name in OPTIONS if name in options}


def asked(task: object, call: Mapping[str, Any]) -> dict[str, Any]:
    """The request and the number of redeliveries of a call of this task, as the service takes them."""
    chosen = {name: getattr(task, name) for name in OPTIONS} | dict(call)
    chosen["lease_s"] = None if chosen["lease_s"] == 0 else chosen["lease_s"]  # Celery drops a None on the way
    name, redeliveries = str(getattr(task, "name", ""))[:LONGEST], chosen.pop("redeliveries")
    labels = {"task": name} | (chosen.pop("labels") or {})
    request = ask(retries=chosen.pop("preemption_retries"), labels=labels, **chosen)
    return {"name": name, "request": request} | ({} if redeliveries is None else {"redeliveries": redeliveries})
