"""Which waiter may take which allocation: one small object per rule; a discipline is a list of rules.

The rules are those of the section "Preemption: who may take from whom" of the specification. A rule knows two things: the
waiter's view of the victim's policy, and the traits of the victim. It answers with a permit, or with the reason why this
rule does not allow it. Protection from every waiter is in `protection.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from app.domain.plan_steps import Trigger
from app.domain.snapshot import PlannerSettings
from app.planner.allocation_classes import VictimTraits
from app.planner.decisions import RefusalReason


class PreemptorView(NamedTuple):
    """A waiter as the rules see it towards one policy. Equal views get equal answers."""

    same_policy: bool
    """The victim's policy is the waiter's own."""
    borrow_level: int
    """The level of the victim's path at which it has to be borrowed too; 0 is its policy itself."""
    short_keys: int
    """The keys that are short at accounts of both paths, as a mask."""
    fits_unused_share: bool
    """The waiter fits into the unused share of its policy, and of the child of the lowest common account on its side."""
    may_enter_share: bool
    """The waiter's amounts fit within its policy's reserved, if other allocations leave."""
    classes_below: int
    """Allocations below this class rank lower than the waiter."""
    classes_not_above: int
    """Allocations below this class do not rank higher than the waiter."""
    is_fixed: bool
    """The waiter is non-preemptible."""
    ignores_shares: bool
    """The waiter may take what is in share as well."""
    is_sensitive: bool
    granted_after: int | None
    """The waiter may take by rank only what was granted with a higher fence; None is no bound."""
    chain: str | None


class Permit(NamedTuple):
    """The permission of one rule to take an allocation, and its conditions."""

    rule: str
    trigger: Trigger
    requires_borrowed: bool = False
    """The permit rests on the victim being borrowed."""
    requires_unused_share: bool = False
    """The permit rests on the waiter's unused share."""
    requires_entering_share: bool = False
    """The permit is valid only if the waiter lies within its policy's reserved when all victims of the set have left."""
    granted_after: int | None = None
    """The permit is valid only for allocations with a higher fence; None is no bound."""


class Rule(Protocol):
    """A reason to take an allocation."""

    @property
    def name(self) -> str:
        """The name of the rule in explanations."""

    def judge(self, waiter: PreemptorView, traits: VictimTraits) -> Permit | RefusalReason:
        """Return the permit of the waiter to take the victim by this rule, or the reason why it may not."""


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Rule `reclaim` of "Who may take from whom": a waiter that fits into its unused share takes what other policies
    borrowed, whatever their rank."""

    name: str = "reclaim"
    not_from_higher: bool = False
    """`order: priority_first`: only from allocations of equal or lower rank."""

    def judge(self, waiter: PreemptorView, traits: VictimTraits) -> Permit | RefusalReason:
        """Return the permit or the refusal of this rule."""
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
    """Rules `priority` and `class` of "Who may take from whom": a higher rank takes what other policies borrowed. In
    `classes` the class alone is the rank."""

    name: str
    takes_in_share: bool = False
    """`order: priority_first`: also what is in share."""

    def judge(self, waiter: PreemptorView, traits: VictimTraits) -> Permit | RefusalReason:
        """Return the permit or the refusal of this rule."""
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
    """Rule `own` of "Who may take from whom", within one policy. A higher class takes what is borrowed, and what is in share
    if the waiter then lies in share itself. Non-preemptible work takes its unused fixed share from all that does not rank
    higher."""

    name: str = "own"
    takes_in_share: bool = False
    """`order: priority_first`: also what is in share."""

    def judge(self, waiter: PreemptorView, traits: VictimTraits) -> Permit | RefusalReason:
        """Return the permit or the refusal of this rule."""
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
    """Return the rules of a pool."""
    priority_first = settings.order == "priority_first"
    return (
        Reclaim(not_from_higher=priority_first),
        HigherRank("class" if settings.discipline == "classes" else "priority", takes_in_share=priority_first),
        OwnPolicy(takes_in_share=priority_first),
    )


TRIGGER_PRECEDENCE = (Trigger.SENSITIVE, Trigger.RECLAIM, Trigger.PRIORITY)
"""If several rules allow it, the trigger that comes first here."""


def permit_preference(permit: Permit) -> tuple[bool, int, int]:
    """Return the key of a permit if several rules allow it: 1. unconditional 2. by trigger 3. the fewest conditions."""
    return (
        permit.requires_entering_share,
        TRIGGER_PRECEDENCE.index(permit.trigger),
        permit.requires_borrowed + permit.requires_unused_share,
    )


RuleAnswers: TypeAlias = tuple[tuple[Rule, Permit | RefusalReason], ...]
"""The answer of each rule."""


def ask_rules(rules: tuple[Rule, ...], waiter: PreemptorView, traits: VictimTraits) -> RuleAnswers | RefusalReason:
    """Return the answer of each rule; or the one reason why no rule is asked."""
    if traits.protection is not None:
        return traits.protection
    if waiter.chain is not None and waiter.chain == traits.chain:
        return RefusalReason.SAME_CHAIN
    if not waiter.short_keys & traits.keys:
        return RefusalReason.HOLDS_NOTHING_SHORT
    return tuple((rule, rule.judge(waiter, traits)) for rule in rules)


def list_permits(rules: tuple[Rule, ...], waiter: PreemptorView, traits: VictimTraits) -> list[Permit]:
    """Return the permits of a waiter for allocations with these traits, the preferred first; empty if it may not take them."""
    answers = ask_rules(rules, waiter, traits)
    if isinstance(answers, RefusalReason):
        return []
    return sorted((answer for _, answer in answers if isinstance(answer, Permit)), key=permit_preference)


def _trigger(waiter: PreemptorView, trigger: Trigger) -> Trigger:
    return Trigger.SENSITIVE if waiter.is_sensitive else trigger


def _in_share_refusal(traits: VictimTraits) -> RefusalReason:
    return RefusalReason.SERVICE_IN_SHARE if traits.is_service else RefusalReason.IN_SHARE
