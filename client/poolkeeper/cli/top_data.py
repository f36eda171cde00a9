"""The data of `poolkeeper top`: the pools, and for some of them the policies, the allocations and the head of the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poolkeeper.cli.options import path

if TYPE_CHECKING:
    from poolkeeper import Client

MAX_RUNNING = 5
"""The most allocations of a pool that are shown."""
MAX_QUEUED = 5
"""The most waiters of a pool that are shown."""
MAX_EXPLAINED = 3
"""The number of first waiters whose reason is read."""
MAX_DETAILED = 4
"""The most pools that are all read in detail; of more pools, only the selected one is."""


@dataclass(frozen=True, slots=True)
class PoolDetail:
    """The policies of a pool, its oldest allocations and the head of its queue."""

    policies: Sequence[Mapping[str, Any]]
    running: Sequence[Mapping[str, Any]]
    """The allocations that were granted first, as rows of the API."""
    queue: Sequence[Mapping[str, Any]]
    """The first waiters, as rows of the API. `explained` is the reason of the wait for the first few, else None."""


@dataclass(frozen=True, slots=True)
class TopData:
    """The data of one read."""

    pools: Sequence[Mapping[str, Any]]
    details: Mapping[str, PoolDetail]
    """Name of a pool → its details."""


def load(client: Client, selected_pool: str | None, *, every_pool: bool = False) -> TopData:
    """Load the data, one call after the other; with `every_pool` the details of every pool. Raise ApiError if a call fails."""
    pools = list(client.items("/pools"))
    names = [str(pool["name"]) for pool in pools]
    if not every_pool and len(names) > MAX_DETAILED:
        names = [selected_pool if selected_pool in names else names[0]]
    return TopData(pools, {name: _load_detail(client, name) for name in names})


def _load_detail(client: Client, pool: str) -> PoolDetail:
    from poolkeeper.errors import NotFound

    try:
        policies = list(client.items(path("pools", pool, "policies")))
        running = _first_requests(client, pool, "active", MAX_RUNNING)
        waiting = _first_requests(client, pool, "queued", MAX_QUEUED)
    except NotFound:  # deleted meanwhile
        return PoolDetail((), (), ())
    queue = [
        {**row, "explained": _explain(client, row, pool) if index < MAX_EXPLAINED else None}
        for index, row in enumerate(waiting)
    ]
    return PoolDetail(policies, running, queue)


def _first_requests(client: Client, pool: str, view: str, count: int) -> Sequence[Mapping[str, Any]]:
    items: Sequence[Mapping[str, Any]] = client.call(
        "GET", path("pools", pool, "requests"), query={"view": view, "limit": count}
    )["items"]
    return items


def _explain(client: Client, request: Mapping[str, Any], pool: str) -> Mapping[str, Any] | None:
    """Return the explanation of a wait in this pool; None if it is not permitted, or if the request is not queued any more."""
    from poolkeeper.errors import AccessDenied, NotFound

    try:
        pools = client.call("GET", path("requests", request["id"], "explain"))["pools"]
    except (NotFound, AccessDenied):
        return None
    return next((dict(explanation) for explanation in pools if explanation["pool"] == pool), None)
