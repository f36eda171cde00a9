"""Use beyond a limit: its amount, the components that use it, and the effect of the setting `over_limit`.

It arises when a capacity or a limit is lowered, because allocations keep their units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from app.domain.pool_settings import OverLimit

LimitKind: TypeAlias = Literal["pool", "group", "policy"]

LISTED_HOLDERS: Final = 5
"""The most components that the sentence names."""
LISTED_OWNERS: Final = 3
"""The most owners of one component that the sentence names."""


@dataclass(frozen=True, slots=True)
class LimitHolder:
    """A component that uses units of a key below an account that is over its limit."""

    component: str
    """The component as `type/name`."""
    units: int
    requests: tuple[str, ...] = ()
    """The ids of its allocations, the largest part first."""
    owners: tuple[str, ...] = ()
    """The owners of those allocations, the largest part first. Requests without an owner are left out."""


@dataclass(frozen=True, slots=True)
class OverLimitUse:
    """The use of one key beyond the limit of one account. The limit of a pool is its capacity."""

    pool: str
    kind: LimitKind
    name: str
    """The name of the account: a group, a policy as `type/name`, or the pool."""
    key: str
    used: int
    limit: int
    over_limit: OverLimit
    """The setting that counts for this account."""
    after_s: int | None
    """With `evict`, the seconds that the account may be over its limit; else None."""
    holders: tuple[LimitHolder, ...]
    """The components, the largest part first."""
    victims: tuple[tuple[str, str], ...] = ()
    """With `evict`, the allocations that would be preempted for the limit, the newest first: request and component."""
    victim_count: int = 0
    staying: int = 0
    """With `evict`, the units beyond the limit that stay because their allocations may not be preempted now."""

    @property
    def beyond(self) -> int:
        """Return the units beyond the limit."""
        return self.used - self.limit

    def visible_to(self, can_see: Callable[[str, str], bool]) -> OverLimitUse:
        """Return the use without the requests and owners of components that a token cannot see. Components and counts stay."""

        def is_visible(component: str) -> bool:
            return can_see(*component.split("/", 1))

        return replace(
            self,
            holders=tuple(
                holder if is_visible(holder.component) else replace(holder, requests=(), owners=()) for holder in self.holders
            ),
            victims=tuple(victim for victim in self.victims if is_visible(victim[1])),
        )

    @property
    def sentence(self) -> str:
        """Return the use and its consequence as sentences."""
        account = f"pool {self.pool}" if self.kind == "pool" else f"{self.kind} {self.pool}/{self.name}"
        bound = "capacity" if self.kind == "pool" else "limit"
        use = f"{account}: {self.used} {self.key} in use, {self.beyond} more than its {bound} of {self.limit}"
        return f"{use}: {_holders_text(self.holders)}. {self._consequence()}"

    def _consequence(self) -> str:
        if self.over_limit == "keep":
            return (
                "With over_limit=keep, running work stays, and nothing new is granted there until the use is within the limit."
            )
        after = f"after {self.after_s} s" if self.after_s else "at once"
        if not self.victim_count:
            return "With over_limit=evict, none of it may be preempted now: it stays, and nothing new is granted there."
        count = "1 request is" if self.victim_count == 1 else f"{self.victim_count} requests are"
        newest = "" if self.victim_count == 1 else ", the newest first"
        stays = f"; {self.staying} {self.key} beyond it stay, because they may not be preempted" if self.staying else ""
        return f"With over_limit=evict, {count} preempted {after}{newest}{stays}."


def new_over_limit(before: Sequence[OverLimitUse], after: Sequence[OverLimitUse]) -> tuple[OverLimitUse, ...]:
    """Return the uses that a change makes larger, and those whose `over_limit` or delay it changes."""
    earlier = {(use.kind, use.pool, use.name, use.key): use for use in before}

    def is_new(use: OverLimitUse) -> bool:
        same = earlier.get((use.kind, use.pool, use.name, use.key))
        return same is None or use.beyond > same.beyond or (use.over_limit, use.after_s) != (same.over_limit, same.after_s)

    return tuple(use for use in after if is_new(use))


def _holders_text(holders: Sequence[LimitHolder]) -> str:
    texts = [f"{_name(holder.component)} {holder.units}{_owners_text(holder.owners)}" for holder in holders[:LISTED_HOLDERS]]
    more = len(holders) - LISTED_HOLDERS
    return ", ".join(texts) + (f" and {more} more components" if more > 1 else " and 1 more component" if more == 1 else "")


def _owners_text(owners: Sequence[str]) -> str:
    if not owners:
        return ""
    more = len(owners) - LISTED_OWNERS
    return f" ({', '.join(owners[:LISTED_OWNERS])}{f' and {more} more' if more > 0 else ''})"


def _name(component: str) -> str:
    return component.removeprefix("orchestrator/")
