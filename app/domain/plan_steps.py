"""What the planner answers: the steps to take in one pool, in order, each of which the ledger checks again as it takes it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Trigger(StrEnum):
    """Why somebody is preempted, as events and metrics name it."""

    PRIORITY = "priority"
    RECLAIM = "reclaim"
    SENSITIVE = "sensitive"
    STARVATION = "starvation"
    AGGRESSIVE_STARVATION = "aggressive_starvation"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Victim:
    """Somebody who has to leave: the allocation, and why."""

    request: str
    fence: int
    trigger: Trigger


@dataclass(frozen=True, slots=True)
class BorrowedCondition:
    """What a choice rests on: the victim is borrowed as long as no more than `most` units of the key ever left that account."""

    account: str
    key: str
    max_stack_exits: int


@dataclass(frozen=True, slots=True)
class UsageCondition:
    """What a choice by fair shares rests on: the account uses no less and no more of the key."""

    account: str
    key: str
    min_units: int
    max_units: int


@dataclass(frozen=True, slots=True)
class Preempt:
    """Preempt all of these for a waiter: it gets a hold, or keeps the one it has."""

    waiter: str
    victims: tuple[Victim, ...]
    unused_share_accounts: tuple[str, ...] = ()
    """Accounts in whose unused share the waiter has to fit now, for the choice to be lawful."""
    reserved_accounts: tuple[str, ...] = ()
    """Accounts within whose reserved the waiter has to lie when these victims have left."""
    borrowed_conditions: tuple[BorrowedCondition, ...] = ()
    usage_conditions: tuple[UsageCondition, ...] = ()


@dataclass(frozen=True, slots=True)
class ReassignVictim:
    """One who is leaving for nobody any more goes on leaving for the owner of another hold."""

    request: str
    fence: int
    owner: str


@dataclass(frozen=True, slots=True)
class Reprieve:
    """One who is leaving for nobody any more is called back."""

    request: str
    fence: int


@dataclass(frozen=True, slots=True)
class EndHold:
    """A hold that nothing can fill any more ends."""

    owner: str


@dataclass(frozen=True, slots=True)
class OverLimitVictim:
    """Somebody who has to leave since an account on its path is over its limit."""

    request: str
    fence: int
    account: str


@dataclass(frozen=True, slots=True)
class EvictOverLimit:
    """Preempt all of these for nobody."""

    victims: tuple[OverLimitVictim, ...]


@dataclass(frozen=True, slots=True)
class AccountUpdate:
    """What is written anew beside one account: fields and their texts, and the fields that go."""

    account: str
    values: tuple[tuple[str, str], ...]
    removed_fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Publication:
    """What was found about the accounts of a pool and differs from what is kept of it."""

    updates: tuple[AccountUpdate, ...]
    is_watched: bool
    """Whether time alone may change something, though nobody waits."""


PlanStep: TypeAlias = EvictOverLimit | Preempt | ReassignVictim | Reprieve | EndHold
