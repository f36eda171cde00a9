"""The output of the planner: the steps for one pool, in order. The ledger checks each step again when it applies it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from app.domain.reasons import ReasonCode


class Trigger(StrEnum):
    """The reason of a preemption, as events and metrics name it."""

    PRIORITY = ReasonCode.PRIORITY
    RECLAIM = ReasonCode.RECLAIM
    SENSITIVE = ReasonCode.SENSITIVE
    STARVATION = ReasonCode.STARVATION
    AGGRESSIVE_STARVATION = ReasonCode.AGGRESSIVE_STARVATION
    LIMIT = ReasonCode.LIMIT


@dataclass(frozen=True, slots=True)
class Victim:
    """An allocation to preempt, and the trigger of its preemption."""

    request: str
    fence: int
    trigger: Trigger


@dataclass(frozen=True, slots=True)
class BorrowedCondition:
    """A condition of a choice: the victim is borrowed as long as at most `max_stack_exits` units of the key have ever left that
    stack."""

    account: str
    key: str
    max_stack_exits: int


@dataclass(frozen=True, slots=True)
class UsageCondition:
    """A condition of a choice by fair share: the account uses between `min_units` and `max_units` of the key."""

    account: str
    key: str
    min_units: int
    max_units: int


@dataclass(frozen=True, slots=True)
class Preempt:
    """A step that preempts victims for a waiter. The waiter gets a hold, or keeps its hold."""

    waiter: str
    victims: tuple[Victim, ...]
    unused_share_accounts: tuple[str, ...] = ()
    """The accounts into whose unused share the waiter has to fit when the step is applied."""
    reserved_accounts: tuple[str, ...] = ()
    """The accounts within whose reserved amounts the waiter has to lie after these victims have left."""
    borrowed_conditions: tuple[BorrowedCondition, ...] = ()
    usage_conditions: tuple[UsageCondition, ...] = ()
    continues: bool = False
    """True if the first victims of the decision are leaving already, and these are the rest."""


@dataclass(frozen=True, slots=True)
class ReassignVictim:
    """A step that gives an orphaned victim to the owner of another hold."""

    request: str
    fence: int
    owner: str


@dataclass(frozen=True, slots=True)
class Reprieve:
    """A step that reprieves a victim."""

    request: str
    fence: int


@dataclass(frozen=True, slots=True)
class EndHold:
    """A step that ends a hold that no set of victims can fill any more."""

    owner: str


@dataclass(frozen=True, slots=True)
class OverLimitVictim:
    """An allocation to preempt because an account of its path is over its limit."""

    request: str
    fence: int
    account: str


@dataclass(frozen=True, slots=True)
class EvictOverLimit:
    """A step that preempts victims without a waiter."""

    victims: tuple[OverLimitVictim, ...]


@dataclass(frozen=True, slots=True)
class AccountUpdate:
    """The fields to write beside one account, and the fields to remove."""

    account: str
    values: tuple[tuple[str, str], ...]
    removed_fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Publication:
    """The statuses of a pool's accounts that differ from the published ones."""

    updates: tuple[AccountUpdate, ...]
    is_watched: bool
    """True if time alone may change a status while no request waits."""


PlanStep: TypeAlias = EvictOverLimit | Preempt | ReassignVictim | Reprieve | EndHold
