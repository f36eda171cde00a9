"""The options of a task: an option of the call replaces the option of the class. The service has the defaults of all other
options."""

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
"""Names of the attributes of a task's class, which are also options of a call."""

OPTIONS_HEADER = "poolkeeper_ask"
"""The header with the options of a call, so that a retry of the message has the same options."""

MAX_LENGTH = 255
"""The most characters of a label's text and of a task's name."""


def pop_options(options: MutableMapping[str, Any], headers: Mapping[str, Any] | None) -> dict[str, Any]:
    """Remove the options of this call from Celery's options, which Celery treats as properties of the message; return them."""
    inherited = dict((headers or {}).get(OPTIONS_HEADER) or {})
    return inherited | {name: options.pop(name) for name in OPTIONS if name in options}


def task_body(task: object, call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request and the redeliveries of a call of this task for the service."""
    options = {name: getattr(task, name) for name in OPTIONS} | dict(call)
    options["lease_s"] = None if options["lease_s"] == 0 else options["lease_s"]  # Celery drops a None from the message
    name, redeliveries = str(getattr(task, "name", ""))[:MAX_LENGTH], options.pop("redeliveries")
    labels = {"task": name} | (options.pop("labels") or {})
    request = request_spec(retries=options.pop("preemption_retries"), labels=labels, **options)
    return {"name": name, "request": request} | ({} if redeliveries is None else {"redeliveries": redeliveries})
