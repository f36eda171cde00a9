"""The options of a task: those of its class, replaced by those of the call. Others are left to the service's defaults."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from poolkeeper.request_body import request_spec

OPTIONS = (
    "component",
    "component_type",
    "pools",
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

OPTIONS_HEADER = "poolkeeper_ask"
"""The header in which the options of a call go with the message, so that a retry asks the same."""

MAX_LENGTH = 255
"""Characters of a label's text and of a task's name."""


def pop_options(options: MutableMapping[str, Any], headers: Mapping[str, Any] | None) -> dict[str, Any]:
    """Take the options of this call out of Celery's, which would treat them as properties of the message."""
    inherited = dict((headers or {}).get(OPTIONS_HEADER) or {})
    return inherited | {name: options.pop(name) for name in OPTIONS if name in options}


def task_body(task: object, call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request and the redeliveries of a call of this task, as the service takes them."""
    options = {name: getattr(task, name) for name in OPTIONS} | dict(call)
    options["lease_s"] = None if options["lease_s"] == 0 else options["lease_s"]  # Celery drops a None on the way
    name, redeliveries = str(getattr(task, "name", ""))[:MAX_LENGTH], options.pop("redeliveries")
    labels = {"task": name} | (options.pop("labels") or {})
    request = request_spec(retries=options.pop("preemption_retries"), labels=labels, **options)
    return {"name": name, "request": request} | ({} if redeliveries is None else {"redeliveries": redeliveries})
