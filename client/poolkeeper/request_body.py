"""Bodies of requests and accounts for the API. A field that is not given is left out: the server has its default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import EllipsisType
from typing import Any


def request_spec(
    component: str,
    *,
    component_type: str | None = None,
    name: str | None = None,
    pools: Sequence[str] | None = None,
    resources: Mapping[str, int] | None = None,
    settings: Mapping[str, Any] | None = None,
    preemptible: bool | None = None,
    preemption_class: int | None = None,
    checkpoint: str | None = None,
    checkpoint_minutes: int | None = None,
    walltime_s: int | None = None,
    retries: int | None = None,
    lease_s: int | EllipsisType | None = ...,
    queue_ttl_s: int | EllipsisType | None = ...,
    labels: Mapping[str, str] | None = None,
    **amounts: int,
) -> dict[str, Any]:
    """Return the body of a request; `gpu=2` means `resources={"gpu": 2}`. For `lease_s` and `queue_ttl_s`, None means none
    and `...` the default of the server.
    """
    values = {
        "component": component,
        "component_type": component_type,
        "name": name,
        "pools": None if pools is None else list(pools),
        "resources": _merge_resources(resources or {}, amounts) or None,
        "settings": dict(settings) if settings else None,
        "preemptible": preemptible,
        "preemption_class": preemption_class,
        "checkpoint": checkpoint,
        "checkpoint_minutes": checkpoint_minutes,
        "walltime_s": walltime_s,
        "retries": retries,
        "labels": dict(labels) if labels else None,
    }
    durations = {name: value for name, value in (("lease_s", lease_s), ("queue_ttl_s", queue_ttl_s)) if value is not ...}
    return {name: value for name, value in values.items() if value is not None} | durations


def account_body(
    *,
    reserved: Mapping[str, int] | None = None,
    limit: Mapping[str, int] | None = None,
    weight: int | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Return the fields that policies and groups share, and those that only one of them has."""
    values = {"reserved": reserved, "limit": limit, "weight": weight} | fields
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items() if value is not None}


def _merge_resources(resources: Mapping[str, int], amounts: Mapping[str, int]) -> dict[str, int]:
    for key in resources.keys() & amounts.keys():
        raise TypeError(f"{key} is given twice: in resources and by name")
    return {**resources, **amounts}
