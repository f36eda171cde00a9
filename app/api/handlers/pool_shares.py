"""Shares: what each part of a pool has, wants and is due, and whose allocations could be taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from app.api.routing import Call
from app.api.schemas.requests import Amounts, Answer, Time, time_of
from app.domain.pool_shares import ShareNode
from app.domain.tokens import Token

Fractions = Mapping[str, float]
"""Key of the pool → part of the pool's capacity, 1 being all of it."""


class SplitAnswer(Answer):
    """The running allocations of a policy by who may take them, as ids; of a group or pool none are told, nor are those
    of components the token is not for."""

    non_preemptible: Sequence[str]
    """Nobody may."""
    aggressively_preemptible: Sequence[str]
    """Only a policy that starves aggressively may."""
    preemptible: Sequence[str]
    """Any starving policy may."""

    @classmethod
    def of(cls, node: ShareNode, token: Token) -> SplitAnswer:
        """The answer for a node, to the bearer of a token."""
        if node.component_type is None or not token.may_see(node.component_type, node.name):
            return cls(non_preemptible=(), aggressively_preemptible=(), preemptible=())
        return cls(
            non_preemptible=node.non_preemptible,
            aggressively_preemptible=node.aggressively_preemptible,
            preemptible=node.preemptible,
        )


class ShareAnswer(Answer):
    """The pool itself, a group of it or a policy."""

    name: str
    """Of a policy its component's."""
    kind: Literal["pool", "group", "policy"]
    component_type: str | None
    """Of a policy."""
    parent: str | None
    """The group it is part of; null directly below the pool, and of the pool itself."""
    weight: int
    mode: Literal["fair_share", "fifo"] | None
    """How a pool or group divides among its children; null of a policy."""
    demand: Amounts
    """Units it uses and waits for."""
    usage: Amounts
    """Units it uses."""
    usage_share: Fractions
    """What it uses, as a part of the pool's capacity, as are all the shares."""
    demand_share: Fractions
    fair_share: Fractions
    """What is due to it just now."""
    guarantee_share: Fractions
    """What is due to it before anything is divided by weight, if it wants it."""
    limit_share: Fractions
    satisfaction: float | None
    """How much a policy has of what is due to it: the lower, the sooner it is served. Of a group or pool the least below it.
    Null: infinite, as nothing is due."""
    status: Literal["non_starving", "starving", "aggressively_starving"]
    below_since: Time | None
    """Since when it has been below its fair share; null: it is not."""
    allocations: SplitAnswer

    @classmethod
    def of(cls, node: ShareNode, token: Token) -> ShareAnswer:
        """The answer for a node, to the bearer of a token."""
        return cls.model_validate(
            {
                "name": node.name,
                "kind": node.kind,
                "component_type": node.component_type,
                "parent": node.parent,
                "weight": node.weight,
                "mode": node.mode,
                "demand": _listed(node.demand, node.fair_share),
                "usage": _listed(node.usage, node.fair_share),
                "usage_share": node.usage_share,
                "demand_share": node.demand_share,
                "fair_share": node.fair_share,
                "guarantee_share": node.guarantee_share,
                "limit_share": node.limit_share,
                "satisfaction": node.satisfaction,
                "status": node.status,
                "below_since": None if node.below_since_ms is None else time_of(node.below_since_ms),
                "allocations": SplitAnswer.of(node, token),
            }
        )


def _listed(amounts: Amounts, keys: Iterable[str]) -> dict[str, int]:
    """Of every key of the pool and of no other, as the shares are."""
    return {key: amounts.get(key, 0) for key in keys}


class SharesAnswer(Answer):
    """A pool's tree: the pool, and below each node its groups by name, then its policies by name."""

    nodes: list[ShareAnswer]


def of_pool(call: Call, pool: str) -> SharesAnswer:
    """What each part of a pool has, wants and is due by fair share, from the pool down to its policies."""
    return SharesAnswer(nodes=[ShareAnswer.of(node, call.token) for node in call.services.sharing.shares(call.workspace, pool)])
