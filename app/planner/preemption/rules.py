"""The rules of preemption: one small object per rule. A discipline is a list of rules.

The rules are explained in `docs/concepts/preemption.md`. A rule reads two things: the waiter's view of the victim's policy, and
the traits of the victim. It answers with a permit, or with the reason of its refusal. Protections from every waiter are in
`protection.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from app.domain.plan_steps import Trigger
from app.domain.snapshot import PlannerSettings
from app.planner.allocation_classes import VictimTraits
from app.planner.decisions import RefusalReason


class PreemptorView(NamedTuple):
    """The properties of a waiter that the rules may know about one policy. Equal views get equal answers."""

    same_policy: bool
    """True if the victim's policy is the waiter's own."""
    borrow_level: int
    """The level of the victim's path at which the victim has to be borrowed as well as at its policy; 0: only at its policy."""
    short_keys: int
    """The keys that are short at accounts of both paths, as a mask."""
    fits_unused_share: bool
    """True if the waiter fits into the unused share of its policy, and of the account on its path directly below the lowest
    common account."""
    may_enter_share: bool
    """True if the waiter's amounts fit within its policy's reserved amounts after other allocations leave."""
    classes_below: int
    """The class below which allocations rank lower than the waiter."""
    classes_not_above: int
    """The class below which allocations rank lower than the waiter or equal to it."""
    is_fixed: bool
    """True if the waiter is non-preemptible."""
    ignores_shares: bool
    """True if the waiter may preempt allocations that are in share too."""
    is_sensitive: bool
    granted_after: int | None
    """The fence above which the waiter may preempt by rank; None if there is no bound."""
    chain: str | None


class Permit(NamedTuple):
    """The permission of one rule to preempt an allocation, and its conditions."""

    rule: str
    trigger: Trigger
    requires_borrowed: bool = False
    """True if the permit needs the victim to be borrowed."""
    requires_unused_share: bool = False
    """True if the permit needs the waiter's unused share."""
    requires_entering_share: bool = False
    """True if the permit is valid only if the waiter lies within its policy's reserved amounts after all victims of the set
    have left."""
    granted_after: int | None = None
    """The fence above which the permit is valid; None if there is no bound."""


class Rule(Protocol):
    """A reason to preempt an allocation."""

    @property
    def name(self) -> str:
        """Return the name of the rule in explanations."""

    def judge(self, waiter: PreemptorView, traits: VictimTraits) -> Permit | RefusalReason:
        """Return the permit of the waiter to preempt the victim by this rule, or the reason why it may not."""


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Rule `reclaim`: a waiter that fits into its unused share preempts borrowed allocations of other policies, whatever their
    rank."""

    name: str = "reclaim"
    not_from_higher: bool = False
    """True with `order: priority_first`: only allocations of equal or lower rank are reclaimed."""

    def judge(self, waiter: PreemptorView, traits: VictimTraits) -> Permit | RefusalReason:
        """Return the permit, or the reason why the waiter may not reclaim."""
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
    """Rules `priority` and `class`: a waiter of higher rank preempts borrowed allocations of other policies. In `classes` the
    class alone is the rank."""

    name: str
    takes_in_share: bool = False
    """True with `order: priority_first`: allocations in share may be preempted too."""

    def judge(self, waiter: PreemptorView, traits: VictimTraits) -> Permit | RefusalReason:
        """Return the permit, or the reason why the rank does not allow it."""
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
    """Rule `own`, within one policy: a waiter of higher class preempts borrowed allocations. It preempts allocations in share
    only if it then lies in share itself. A non-preemptible waiter claims its unused fixed share from allocations that do not
    rank higher."""

    name: str = "own"
    takes_in_share: bool = False
    """True with `order: priority_first`: allocations in share may be preempted too."""

    def judge(self, waiter: PreemptorView, traits: VictimTraits) -> Permit | RefusalReason:
        """Return the permit, or the reason why the waiter may not preempt within its policy."""
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
    """Return the rules of the pool's discipline."""
    priority_first = settings.order == "priority_first"
    return (
        Reclaim(not_from_higher=priority_first),
        HigherRank("class" if settings.discipline == "classes" else "priority", takes_in_share=priority_first),
        OwnPolicy(takes_in_share=priority_first),
    )


TRIGGER_PRECEDENCE = (Trigger.SENSITIVE, Trigger.RECLAIM, Trigger.PRIORITY)
"""The triggers by precedence: if several rules allow a preemption, the first of these counts."""


def permit_preference(permit: Permit) -> tuple[bool, int, int]:
    """Return the sort key of permits of one allocation: 1. unconditional 2. by trigger 3. the fewest conditions."""
    return (
        permit.requires_entering_share,
        TRIGGER_PRECEDENCE.index(permit.trigger),
        permit.requires_borrowed + permit.requires_unused_share,
    )


RuleAnswers: TypeAlias = tuple[tuple[Rule, Permit | RefusalReason], ...]
"""The answer of each rule: a permit or a reason."""


def ask_rules(rules: tuple[Rule, ...], waiter: PreemptorView, traits: VictimTraits) -> RuleAnswers | RefusalReason:
    """Return the answer of each rule, or the one reason why no rule is asked."""
    if traits.protection is not None:
        return traits.protection
    if waiter.chain is not None and waiter.chain == traits.chain:
        return RefusalReason.SAME_CHAIN
    if not waiter.short_keys & traits.keys:
        return RefusalReason.HOLDS_NOTHING_SHORT
    return tuple((rule, rule.judge(waiter, traits)) for rule in rules)


def list_permits(rules: tuple[Rule, ...], waiter: PreemptorView, traits: VictimTraits) -> list[Permit]:
    """Return the permits of a waiter for allocations with these traits, the preferred first; empty if there is none."""
    answers = ask_rules(rules, waiter, traits)
    if isinstance(answers, RefusalReason):
        return []
    return sorted((answer for _, answer in answers if isinstance(answer, Permit)), key=permit_preference)


def _trigger(waiter: PreemptorView, trigger: Trigger) -> Trigger:
    return Trigger.SENSITIVE if waiter.is_sensitive else trigger


def _in_share_refusal(traits: VictimTraits) -> RefusalReason:
    return RefusalReason.SERVICE_IN_SHARE if traits.is_service else RefusalReason.IN_SHARE
