"""Who may take from whom: one small object per rule, and a discipline is a list of them.

A rule knows two things only: how the waiter stands to the holder's policy, and the kind of holder. It answers with the grounds
on which the holder may be taken, or with the reason why this rule does not allow it. What protects a holder from everybody is
not here (`protection.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from app.domain.plan_steps import Trigger
from app.domain.snapshot import Terms
from app.planner.allocation_classes import Traits
from app.planner.decisions import WhyNot


class Standing(NamedTuple):
    """How a waiter stands to one policy: all that a rule may know of the waiter. Equal standings get equal answers."""

    own: bool
    """It is the waiter's own policy."""
    level: int
    """How far up the holder's path the account is that has to be borrowed beside its policy; 0 is the policy itself."""
    short: int
    """What is short where both are, as a mask of keys."""
    unused: bool
    """The waiter fits into the unused share of its policy, and of its side where the two meet."""
    within: bool
    """The waiter's ask could lie within its policy's reserved, if others leave."""
    lower: int
    """Holders below this class rank lower than the waiter."""
    not_higher: int
    """Holders below this class do not rank higher."""
    fixed: bool
    """The waiter is not preemptible."""
    free: bool
    """The waiter may take what is in share as well."""
    sensitive: bool
    after: int | None
    """It may take by rank only what was granted with a later fence."""
    chain: str | None


class Grounds(NamedTuple):
    """On what grounds a holder may be taken."""

    rule: str
    trigger: Trigger
    borrowed: bool = False
    """They rest on the holder's being borrowed."""
    unused: bool = False
    """They rest on the waiter's unused share."""
    within: bool = False
    """They hold only if the waiter lies within its policy's reserved when all that were chosen have left."""
    after: int | None = None
    """They hold only for what was granted with a later fence."""


class Rule(Protocol):
    """A reason to take from somebody."""

    @property
    def name(self) -> str:
        """What explanations call it."""

    def judge(self, waiter: Standing, holder: Traits) -> Grounds | WhyNot:
        """The grounds on which the waiter may take from the holder by this rule, or why it may not."""


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Whose share is unused takes what others borrowed, whatever their rank."""

    name: str = "reclaim"
    not_from_higher: bool = False
    """With `priority_first`: not from a higher rank."""

    def judge(self, waiter: Standing, holder: Traits) -> Grounds | WhyNot:
        """See the class."""
        if waiter.own:
            return WhyNot.SAME_POLICY
        if not waiter.unused:
            return WhyNot.SHARE_NOT_UNUSED
        if self.not_from_higher and holder.preemption_class >= waiter.not_higher:
            return WhyNot.RANK_HIGHER
        if not holder.is_borrowed(waiter.short, waiter.level):
            return WhyNot.IN_SHARE
        return Grounds(self.name, _trigger(waiter, Trigger.RECLAIM), borrowed=True, unused=True)


@dataclass(frozen=True, slots=True)
class HigherRank:
    """A higher rank takes what others borrowed: `priority`, or `class` where the class alone is the rank."""

    name: str
    in_share_too: bool = False
    """With `priority_first`: whether it is borrowed or not."""

    def judge(self, waiter: Standing, holder: Traits) -> Grounds | WhyNot:
        """See the class."""
        if waiter.own:
            return WhyNot.SAME_POLICY
        if holder.preemption_class >= waiter.lower:
            return WhyNot.RANK_NOT_LOWER
        rests = holder.is_service or not (self.in_share_too or waiter.free)
        if rests and not holder.is_borrowed(waiter.short, waiter.level):
            return _in_share(holder)
        return Grounds(self.name, _trigger(waiter, Trigger.PRIORITY), borrowed=rests, after=waiter.after)


@dataclass(frozen=True, slots=True)
class Own:
    """Within a policy a higher class takes what is borrowed, and what is in share if it then lies in share itself; fixed work
    takes its unused fixed share from all who do not rank higher."""

    name: str = "own"
    in_share_too: bool = False
    """With `priority_first`: whether it is borrowed or not."""

    def judge(self, waiter: Standing, holder: Traits) -> Grounds | WhyNot:
        """See the class."""
        if not waiter.own:
            return WhyNot.OTHER_POLICY
        if waiter.fixed and waiter.unused:
            return self._fixed_first(waiter, holder)
        return self._higher_class(waiter, holder)

    def _fixed_first(self, waiter: Standing, holder: Traits) -> Grounds | WhyNot:
        if holder.preemption_class >= waiter.not_higher:
            return WhyNot.RANK_HIGHER
        rests = holder.is_service
        if rests and not holder.is_borrowed(waiter.short, waiter.level):
            return WhyNot.SERVICE_IN_SHARE
        return Grounds(self.name, _trigger(waiter, Trigger.RECLAIM), borrowed=rests, unused=True, after=waiter.after)

    def _higher_class(self, waiter: Standing, holder: Traits) -> Grounds | WhyNot:
        if holder.preemption_class >= waiter.lower:
            return WhyNot.RANK_NOT_LOWER
        rests = holder.is_service or not self.in_share_too
        grounds = Grounds(self.name, _trigger(waiter, Trigger.PRIORITY), borrowed=rests, after=waiter.after)
        if not rests or holder.is_borrowed(waiter.short, waiter.level):
            return grounds
        if holder.is_service or not waiter.within:
            return _in_share(holder)
        return grounds._replace(borrowed=False, within=True)


def discipline(terms: Terms) -> tuple[Rule, ...]:
    """The rules of a pool."""
    priority_first = terms.order == "priority_first"
    return (
        Reclaim(not_from_higher=priority_first),
        HigherRank("class" if terms.discipline == "classes" else "priority", in_share_too=priority_first),
        Own(in_share_too=priority_first),
    )


PRECEDENCE = (Trigger.SENSITIVE, Trigger.RECLAIM, Trigger.PRIORITY)
"""Which trigger it is where several rules allow it: the first."""


def preference(grounds: Grounds) -> tuple[bool, int, int]:
    """Which grounds to stand on where several rules allow it: 1. unconditional 2. by trigger 3. those that rest on least."""
    return grounds.within, PRECEDENCE.index(grounds.trigger), grounds.borrowed + grounds.unused


Answers: TypeAlias = tuple[tuple[Rule, Grounds | WhyNot], ...]
"""What each rule said."""


def verdict(rules: tuple[Rule, ...], waiter: Standing, holder: Traits) -> Answers | WhyNot:
    """What each rule says; or the one reason why none is asked."""
    if holder.protected is not None:
        return holder.protected
    if waiter.chain is not None and waiter.chain == holder.chain:
        return WhyNot.SAME_CHAIN
    if not waiter.short & holder.held:
        return WhyNot.HOLDS_NOTHING_SHORT
    return tuple((rule, rule.judge(waiter, holder)) for rule in rules)


def grounds(rules: tuple[Rule, ...], waiter: Standing, holder: Traits) -> list[Grounds]:
    """The grounds on which a waiter may take from a kind of holder, those to stand on first; none if it may not."""
    said = verdict(rules, waiter, holder)
    if isinstance(said, WhyNot):
        return []
    return sorted((answer for _, answer in said if isinstance(answer, Grounds)), key=preference)


def _trigger(waiter: Standing, trigger: Trigger) -> Trigger:
    return Trigger.SENSITIVE if waiter.sensitive else trigger


def _in_share(holder: Traits) -> WhyNot:
    return WhyNot.SERVICE_IN_SHARE if holder.is_service else WhyNot.IN_SHARE
