"""What `poolkeeper top` sees at one moment: pools, and of those that are looked at closely their policies and who is next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poolkeeper.cli.options import path

if TYPE_CHECKING:
    from poolkeeper import Client

NEXT_SHOWN = 5
"""Waiters of a pool that are shown."""
EXPLAINED = 3
"""Of those, the first, it is asked why they wait."""
CLOSE = 4
"""So many pools are all looked at closely; of more only the one that was chosen."""


@dataclass(frozen=True, slots=True)
class Close:
    """A pool looked at closely."""

    policies: Sequence[Mapping[str, Any]]
    queue: Sequence[Mapping[str, Any]]
    """The first of those that wait, as they are in lists; `explained` is why, of the very first, or None."""


@dataclass(frozen=True, slots=True)
class Sight:
    """All of it."""

    pools: Sequence[Mapping[str, Any]]
    close: Mapping[str, Close]
    """By the name of the pool."""


def see(client: Client, chosen: str | None, *, whole: bool = False) -> Sight:
    """Ask, one thing after the other; `whole` looks at every pool closely. Refused if there is no answer."""
    pools = list(client.items("/pools"))
    names = [str(pool["name"]) for pool in pools]
    if not whole and len(names) > CLOSE:
        names = [chosen if chosen in names else names[0]]
    return Sight(pools, {name: _close(client, name) for name in names})


def _close(client: Client, pool: str) -> Close:
    from poolkeeper.errors import NotFound

    try:
        policies = list(client.items(path("pools", pool, "policies")))
        waiting = client.call("GET", path("pools", pool, "requests"), query={"view": "queued", "limit": NEXT_SHOWN})["items"]
    except NotFound:  # it has gone meanwhile
        return Close((), ())
    queue = [{**row, "explained": _explained(client, row, pool) if at < EXPLAINED else None} for at, row in enumerate(waiting)]
    return Close(policies, queue)


def _explained(client: Client, request: Mapping[str, Any], pool: str) -> Mapping[str, Any] | None:
    """Why it waits in this pool; None if that is not told, or it waits no more."""
    from poolkeeper.errors import Denied, NotFound

    try:
        told = client.call("GET", path("requests", request["id"], "explain"))["pools"]
    except (NotFound, Denied):
        return None
    return next((dict(one) for one in told if one["pool"] == pool), None)
