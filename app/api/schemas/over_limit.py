"""Response models of use beyond limits."""

from __future__ import annotations

from collections.abc import Sequence

from app.api.schemas.response_model import ResponseModel
from app.domain.over_limit import LimitHolder, OverLimitUse
from app.domain.tokens import Token


class LimitHolderResponse(ResponseModel):
    """A component that uses units of the key."""

    component: str
    """The name of the component."""
    component_type: str
    """The type of the component."""
    units: int
    """The units that it uses."""
    requests: Sequence[str]
    """The ids of its requests, the largest part first; empty if the token cannot see the component."""
    owners: Sequence[str]
    """The owners of those requests, as `user@host`, the largest part first."""

    @classmethod
    def of(cls, holder: LimitHolder) -> LimitHolderResponse:
        """Return the response for a component."""
        kind, _, name = holder.component.partition("/")
        return cls(component=name, component_type=kind, units=holder.units, requests=holder.requests, owners=holder.owners)


class OverLimitResponse(ResponseModel):
    """The use of one key beyond the capacity of a pool, or the limit of a group or a policy."""

    pool: str
    """The name of the pool."""
    kind: str
    """The kind of the account: `pool`, `group` or `policy`."""
    name: str
    """The name of the pool or group; for a policy `type/name`."""
    key: str
    """The resource key of these units."""
    used: int
    """The units in use."""
    limit: int
    """The limit in units; for a pool its capacity."""
    beyond: int
    """The units beyond the limit."""
    over_limit: str
    """The setting that counts for the account. `keep`: allocations stay. `evict`: allocations beyond it are preempted."""
    after_s: int | None
    """Seconds for which the use may stay beyond the limit before a preemption, with `evict`; null with `keep`."""
    holders: Sequence[LimitHolderResponse]
    """The components that use units of the key there, the largest part first."""
    victims: Sequence[str]
    """The requests that would be preempted, with `evict`: the newest first, as far as the token can see them."""
    victim_count: int
    """The number of all requests that would be preempted, with `evict`."""
    staying: int
    """The units beyond the limit that stay, with `evict`: their allocations may not be preempted now."""
    sentence: str
    """The use and its consequence as a sentence."""

    @classmethod
    def of(cls, use: OverLimitUse, token: Token) -> OverLimitResponse:
        """Return the response for a token: requests and owners of components that it cannot see are left out."""
        use = use.visible_to(token.can_see)
        return cls(
            pool=use.pool,
            kind=use.kind,
            name=use.name,
            key=use.key,
            used=use.used,
            limit=use.limit,
            beyond=use.beyond,
            over_limit=use.over_limit,
            after_s=use.after_s,
            holders=[LimitHolderResponse.of(holder) for holder in use.holders],
            victims=[request for request, _ in use.victims],
            victim_count=use.victim_count,
            staying=use.staying,
            sentence=use.sentence,
        )
