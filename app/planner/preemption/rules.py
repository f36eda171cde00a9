"""Who may take from whom: one small object per rule, and a discipline is a list of them.

A rule knows two things only: how the waiter stands to the holder's policy, and the kind of holder. It answers with the grounds
on which the holder may be taken, or with the reason why this rule does not allow it. What protects a holder from everybody is
not here (`protection.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from app.domain.plan_steps import Trigger
from app.domain.snapshot import PlannerSettings
from app.planner.allocation_classes import VictimTraits
from app.planner.decisions import RefusalReason


class PreemptorView(NamedTuple):
    """How a waiter stands to one policy: all that a rule may know of the waiter. Equal standings get equal answers."""

    same_policy: bool
    """It is the waiter's own policy."""
    borrow_level: int
    """How far up the holder's path the account is that has to be borrowed beside its policy; 0 is the policy itself."""
    short_keys: int
    """What is short where both are, as a mask of keys."""
    fits_unused_share: bool
    """The waiter fits into the unused share of its policy, and of its side where the two meet."""
    may_enter_share: bool
    """The waiter's ask could lie within its policy's reserved, if others leave."""
    classes_below: int
    """Holders below this class rank lower than the waiter."""
    classes_not_above: int
    """Holders below this class do not rank higher."""
    is_fixed: bool
    """The waiter is not preemptible."""
    ignores_shares: bool
    """The waiter may take what is in share as well."""
    is_sensitive: bool
    granted_after: int | None
    """It may take by rank only what was granted with a later fence."""
    chain: str | None


class Permit(NamedTuple):
    """On what grounds a holder may be taken."""

    rule: str
    trigger: Trigger
    requires_borrowed: bool = False
    """They rest on the holder's being borrowed."""
    requires_unused_share: bool = False
    """They rest on the waiter's unused share."""
    requires_entering_share: bool = False
    """They hold only if the waiter lies within its policy's reserved when all that were chosen have left."""
    granted_after: int | None = None
    """They hold only for what was granted with a later fence."""


class Rule(Protocol):
    """A reason to take from somebody."""

    @property
    def name(self) -> str:
        """What explanations call it."""

    def judge(self, waiter: PreemptorView, traits: VictimTraits) -> Permit | RefusalReason:
        """The grounds on which the waiter may take from the holder by this rule, or why it may not."""


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Whose share is unused takes what others borrowed, whatever their rank."""

    name: str = "reclaim"
    not_from_higher: bool = False
    """With `priority_first`: not from a higher rank."""

    def judge(self, waiter: PreemptorView, traits: VictimTraits) -> Permit | RefusalReason:
        """See the class."""
        if waiter.same_policy:
            return RefusalReason.SAME_POLICY
        if not waiter.fits_unused_share:
            return RefusalReason.SHARE_NOT_UNUSED
        if self.not_from_higher and traits.preemption_class >= waiter.classes_not_above:
            return RefusalReason.RANK_HIGHER
        if not traits.is_borrowed(waiter.short_keys, waiter.borrow_level):
            return RefusalReason.IN_SHARE
        return Permit(self.name, _trigger(waiter, Trigger.RECLAIM), requires_borrowed=True, requires_unused_share=True)


@dataclass(frozen=True, slots=True)
class HigherRank:
    """A higher rank takes what others borrowed: `priority`, or `class` where the class alone is the rank."""

    name: str
    takes_in_share: bool = False
    """With `priority_first`: whether it is borrowed or not."""

    def judge(self, waiter: PreemptorView, traits: VictimTraits) -> Permit | RefusalReason:
        """See the class."""
        if waiter.same_policy:
            return RefusalReason.SAME_POLICY
        if traits.preemption_class >= waiter.classes_below:
            return RefusalReason.RANK_NOT_LOWER
        requires_borrowed = traits.is_service or not (self.takes_in_share or waiter.ignores_shares)
        if requires_borrowed and not traits.is_borrowed(waiter.short_keys, waiter.borrow_level):
            return _in_share_refusal(traits)
        return Permit(
            self.name,
            _trigger(waiter, Trigger.PRIORITY),
            requires_borrowed=requires_borrowed,
            granted_after=waiter.granted_after,
        )


@dataclass(frozen=True, slots=True)
class OwnPolicy:
    """Within a policy a higher class takes what is borrowed, and what is in share if it then lies in share itself; fixed work
    takes its unused fixed share from all who do not rank higher."""

    name: str = "own"
    takes_in_share: bool = False
    """With `priority_first`: whether it is borrowed or not."""

    def judge(self, waiter: PreemptorView, traits: VictimTraits) -> Permit | RefusalReason:
        """See the class."""
        if not waiter.same_policy:
            return RefusalReason.OTHER_POLICY
        if waiter.is_fixed and waiter.fits_unused_share:
            return self._fixed_first(waiter, traits)
        return self._higher_class(waiter, traits)

    def _fixed_first(self, waiter: PreemptorView, traits: VictimTraits) -> Permit | RefusalReason:
        if traits.preemption_class >= waiter.classes_not_above:
            return RefusalReason.RANK_HIGHER
        requires_borrowed = traits.is_service
        if requires_borrowed and not traits.is_borrowed(waiter.short_keys, waiter.borrow_level):
            return RefusalReason.SERVICE_IN_SHARE
        return Permit(
            self.name,
            _trigger(waiter, Trigger.RECLAIM),
            requires_borrowed=requires_borrowed,
            requires_unused_share=True,
            granted_after=waiter.granted_after,
        )

    def _higher_class(self, waiter: PreemptorView, traits: VictimTraits) -> Permit | RefusalReason:
        if traits.preemption_class >= waiter.classes_below:
            return RefusalReason.RANK_NOT_LOWER
        requires_borrowed = traits.is_service or not self.takes_in_share
        permit = Permit(
            self.name,
            _trigger(waiter, Trigger.PRIORITY),
            requires_borrowed=requires_borrowed,
            granted_after=waiter.granted_after,
        )
        if not requires_borrowed or traits.is_borrowed(waiter.short_keys, waiter.borrow_level):
            return permit
        if traits.is_service or not waiter.may_enter_share:
            return _in_share_refusal(traits)
        return permit._replace(requires_borrowed=False, requires_entering_share=True)


def rules_of(settings: PlannerSettings) -> tuple[Rule, ...]:
    """The rules of a pool."""
    priority_first = settings.order == "priority_first"
    return (
        Reclaim(not_from_higher=priority_first),
        HigherRank("class" if settings.discipline == "classes" else "priority", takes_in_share=priority_first),
        OwnPolicy(takes_in_share=priority_first),
    )


TRIGGER_PRECEDENCE = (Trigger.SENSITIVE, Trigger.RECLAIM, Trigger.PRIORITY)
"""Which trigger it is where several rules allow it: the first."""


def permit_preference(permit: Permit) -> tuple[bool, int, int]:
    """Which grounds to stand on where several rules allow it: 1. unconditional 2. by trigger 3. those that rest on least."""
    return (
        permit.requires_entering_share,
        TRIGGER_PRECEDENCE.index(permit.trigger),
        permit.requires_borrowed + permit.requires_unused_share,
    )


RuleAnswers: TypeAlias = tuple[tuple[Rule, Permit | RefusalReason], ...]
"""What each rule said."""


def ask_rules(rules: tuple[Rule, ...], waiter: PreemptorView, traits: VictimTraits) -> RuleAnswers | RefusalReason:
    """What each rule says; or the one reason why none is asked."""
    if traits.protection is not None:
        return traits.protection
    if waiter.chain is not None and waiter.chain == traits.chain:
        return RefusalReason.SAME_CHAIN
    if not waiter.short_keys & traits.keys:
        return RefusalReason.HOLDS_NOTHING_SHORT
    return tuple((rule, rule.judge(waiter, traits)) for rule in rules)


def list_permits(rules: tuple[Rule, ...], waiter: PreemptorView, traits: VictimTraits) -> list[Permit]:
    """The grounds on which a waiter may take from a kind of holder, those to stand on first; none if it may not."""
    answers = ask_rules(rules, waiter, traits)
    if isinstance(answers, RefusalReason):
        return []
    return sorted((answer for _, answer in answers if isinstance(answer, Permit)), key=permit_preference)


def _trigger(waiter: PreemptorView, trigger: Trigger) -> Trigger:
    return Trigger.SENSITIVE if waiter.is_sensitive else trigger


def _in_share_refusal(traits: VictimTraits) -> RefusalReason:
    return RefusalReason.SERVICE_IN_SHARE if traits.is_service else RefusalReason.IN_SHARE
