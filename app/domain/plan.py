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


@dataclass(frozen=True, slots=True)
class Victim:
    """Somebody who has to leave: the allocation, and why."""

    request: str
    fence: int
    trigger: Trigger


@dataclass(frozen=True, slots=True)
class StillBorrowed:
    """What a choice rests on: the victim is borrowed as long as no more than `most` units of the key ever left that account."""

    account: str
    key: str
    most: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Preempt all of these for a waiter: it gets a hold, or keeps the one it has."""

    waiter: str
    victims: tuple[Victim, ...]
    unused: tuple[str, ...] = ()
    """Accounts in whose unused share the waiter has to fit now, for the choice to be lawful."""
    within: tuple[str, ...] = ()
    """Accounts within whose reserved the waiter has to lie when these victims have left."""
    borrowed: tuple[StillBorrowed, ...] = ()


@dataclass(frozen=True, slots=True)
class PassOn:
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


Step: TypeAlias = Stop | PassOn | Reprieve | EndHold
