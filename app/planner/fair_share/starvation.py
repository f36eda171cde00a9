"""Who has been below its fair share for too long, and the settings that say what too long is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from app.domain.amounts import Amounts, decode


class Status(StrEnum):
    """How urgent a node's want is."""

    NON_STARVING = "non_starving"
    STARVING = "starving"
    AGGRESSIVELY_STARVING = "aggressively_starving"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a node waits for its fair share, and how much of what runs there is protected."""

    tolerance: Fraction = Fraction(8, 10)
    """It is below its fair share when it has less than this part of it."""
    timeout_s: int = 30
    aggressive: bool = False
    """Whether it may starve aggressively."""
    aggressive_timeout_s: int = 120
    threshold: Fraction = Fraction(1)
    """What runs beyond this part of the fair share is preemptible."""
    aggressive_threshold: Fraction = Fraction(2, 10)
    """What runs beyond this part of it is preemptible by those who starve aggressively."""
    allow_aggressive: bool = True
    protects: Amounts = field(default_factory=dict)
    """So much that runs is never preemptible; empty is nothing."""


@dataclass(frozen=True, slots=True)
class State:
    """A node's status, and since when it is below its fair share; None if it is not."""

    status: Status = Status.NON_STARVING
    below_ms: int | None = None


_READ: dict[str, tuple[str, Callable[[str], Any]]] = {
    "fair_share_tolerance": ("tolerance", Fraction),
    "starvation_timeout_s": ("timeout_s", int),
    "aggressive_starvation": ("aggressive", lambda text: text == "1"),
    "aggressive_starvation_timeout_s": ("aggressive_timeout_s", int),
    "preemption_threshold": ("threshold", Fraction),
    "aggressive_preemption_threshold": ("aggressive_threshold", Fraction),
    "allow_aggressive_preemption": ("allow_aggressive", lambda text: text == "1"),
    "non_preemptible_usage_threshold": ("protects", decode),
}
"""Setting as it stands in Redis → the field, and how it is read."""


def of_pool(said: Mapping[str, str]) -> Patience:
    """A pool's own patience; what it does not say is as usual."""
    return replace(Patience(), **_said(said))


def inherit(above: Patience, said: Mapping[str, str], is_policy: bool) -> Patience:
    """What counts below a node: a group replaces what it says, a policy can only be more patient."""
    own = _said(said)
    return replace(above, **(_more_patient(above, own) if is_policy else own))


def _said(said: Mapping[str, str]) -> dict[str, Any]:
    return {field: read(said[name]) for name, (field, read) in _READ.items() if said.get(name)}


def _more_patient(above: Patience, own: dict[str, Any]) -> dict[str, Any]:
    softened = dict(own)
    for name, choose in (("tolerance", min), ("timeout_s", max), ("aggressive", min), ("aggressive_timeout_s", max)):
        if name in own:
            softened[name] = choose(getattr(above, name), own[name])
    if "protects" in own:
        softened["protects"] = _least(above.protects, own["protects"])
    return softened


def _least(one: Amounts, other: Amounts) -> Amounts:
    """Per key the smaller; a key that only one names is as that one says."""
    return {key: min(amounts[key] for amounts in (one, other) if key in amounts) for key in sorted({*one, *other})}


def advance(state: State, is_below: bool, now_ms: int, patience: Patience, queued: int | None) -> State:
    """A node's state now. `queued`: how many requests of a leaf wait, as who has none waits for nothing; None of a group.

    One who was below since a time that is yet to come is below since now, so a clock that was set back makes nobody starve.
    """
    if not is_below:
        return State()
    since = now_ms if state.below_ms is None else min(state.below_ms, now_ms)
    factor = 1000 if queued is None else 1000 * min(1, queued)
    waited = now_ms - since
    if state.below_ms is None:
        return State(state.status, since)
    if patience.aggressive and waited > patience.aggressive_timeout_s * factor:
        return State(Status.AGGRESSIVELY_STARVING, since)
    if waited > patience.timeout_s * factor:
        return State(Status.STARVING, since)
    return State(state.status, since)
