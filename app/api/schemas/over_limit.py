"""Response models of use beyond limits."""

from __future__ import annotations

from collections.abc import Sequence

from app.api.schemas.response_model import ResponseModel
from app.domain.over_limit import LimitHolder, OverLimitUse
from app.domain.tokens import Token


class LimitHolderResponse(ResponseModel):
    """A component that uses units of the key."""

    component: str
    component_type: str
    units: int
    requests: Sequence[str]
    """The ids of its allocations, the largest part first; none if the token cannot see the component."""
    owners: Sequence[str]
    """The owners of those allocations (`user@host` of their labels), the largest part first."""

    @classmethod
    def of(cls, holder: LimitHolder) -> LimitHolderResponse:
        """Return the response for a component."""
        kind, _, name = holder.component.partition("/")
        return cls(component=name, component_type=kind, units=holder.units, requests=holder.requests, owners=holder.owners)


class OverLimitResponse(ResponseModel):
    """The use of one key beyond the capacity of a pool, or the limit of a group or a policy."""

    pool: str
    kind: str
    """`pool`, `group` or `policy`."""
    name: str
    """The pool, the group, or the policy as `type/name`."""
    key: str
    used: int
    limit: int
    beyond: int
    """The units beyond the limit."""
    over_limit: str
    """The setting that counts for the account. `keep`: allocations stay. `evict`: allocations beyond it are preempted."""
    after_s: int | None
    """With `evict`: how long the account may be over its limit before something is preempted; null with `keep`."""
    holders: Sequence[LimitHolderResponse]
    """The components that use units of the key there, the largest part first."""
    victims: Sequence[str]
    """With `evict`: the requests that would be preempted for it, the newest first; those that the token can see."""
    victim_count: int
    """With `evict`: the number of all requests that would be preempted for it."""
    staying: int
    """With `evict`: the units beyond the limit that stay, as their allocations may not be preempted now."""
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
