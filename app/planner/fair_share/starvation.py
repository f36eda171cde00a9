"""Who has been below its fair share for too long, and the settings that say what too long is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from app.domain.amounts import Amounts, decode


class StarvationStatus(StrEnum):
    """How urgent a node's want is."""

    NON_STARVING = "non_starving"
    STARVING = "starving"
    AGGRESSIVELY_STARVING = "aggressively_starving"


@dataclass(frozen=True, slots=True)
class StarvationSettings:
    """How long a node waits for its fair share, and how much of what runs there is protected."""

    tolerance: Fraction = Fraction(8, 10)
    """It is below its fair share when it has less than this part of it."""
    timeout_s: int = 30
    may_starve_aggressively: bool = False
    """Whether it may starve aggressively."""
    aggressive_timeout_s: int = 120
    threshold: Fraction = Fraction(1)
    """What runs beyond this part of the fair share is preemptible."""
    aggressive_threshold: Fraction = Fraction(2, 10)
    """What runs beyond this part of it is preemptible by those who starve aggressively."""
    allow_aggressive: bool = True
    protected_usage: Amounts = field(default_factory=dict)
    """So much that runs is never preemptible; empty is nothing."""


@dataclass(frozen=True, slots=True)
class StarvationState:
    """A node's status, and since when it is below its fair share; None if it is not."""

    status: StarvationStatus = StarvationStatus.NON_STARVING
    below_ms: int | None = None


_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "fair_share_tolerance": ("tolerance", Fraction),
    "starvation_timeout_s": ("timeout_s", int),
    "aggressive_starvation": ("may_starve_aggressively", lambda text: text == "1"),
    "aggressive_starvation_timeout_s": ("aggressive_timeout_s", int),
    "preemption_threshold": ("threshold", Fraction),
    "aggressive_preemption_threshold": ("aggressive_threshold", Fraction),
    "allow_aggressive_preemption": ("allow_aggressive", lambda text: text == "1"),
    "non_preemptible_usage_threshold": ("protected_usage", decode),
}
"""Setting as it stands in Redis → the field, and how it is read."""


def read_pool_settings(texts: Mapping[str, str]) -> StarvationSettings:
    """A pool's own patience; what it does not say is as usual."""
    return replace(StarvationSettings(), **_read(texts))


def inherit_settings(inherited: StarvationSettings, texts: Mapping[str, str], is_policy: bool) -> StarvationSettings:
    """What counts below a node: a group replaces what it says, a policy can only be more patient."""
    own = _read(texts)
    return replace(inherited, **(_more_patient(inherited, own) if is_policy else own))


def _read(texts: Mapping[str, str]) -> dict[str, Any]:
    return {field: read(texts[name]) for name, (field, read) in _READERS.items() if texts.get(name)}


def _more_patient(inherited: StarvationSettings, own: dict[str, Any]) -> dict[str, Any]:
    softened = dict(own)
    for name, choose in (
        ("tolerance", min),
        ("timeout_s", max),
        ("may_starve_aggressively", min),
        ("aggressive_timeout_s", max),
    ):
        if name in own:
            softened[name] = choose(getattr(inherited, name), own[name])
    if "protected_usage" in own:
        softened["protected_usage"] = _smaller(inherited.protected_usage, own["protected_usage"])
    return softened


def _smaller(left: Amounts, right: Amounts) -> Amounts:
    """Per key the smaller; a key that only one names is as that one says."""
    return {key: min(amounts[key] for amounts in (left, right) if key in amounts) for key in sorted({*left, *right})}


def next_state(
    state: StarvationState, is_below: bool, now_ms: int, settings: StarvationSettings, queued: int | None
) -> StarvationState:
    """A node's state now. `queued`: how many requests of a leaf wait, as who has none waits for nothing; None of a group.

    One who was below since a time that is yet to come is below since now, so a clock that was set back makes nobody starve.
    """
    if not is_below:
        return StarvationState()
    since = now_ms if state.below_ms is None else min(state.below_ms, now_ms)
    factor = 1000 if queued is None else 1000 * min(1, queued)
    waited = now_ms - since
    if state.below_ms is None:
        return StarvationState(state.status, since)
    if settings.may_starve_aggressively and waited > settings.aggressive_timeout_s * factor:
        return StarvationState(StarvationStatus.AGGRESSIVELY_STARVING, since)
    if waited > settings.timeout_s * factor:
        return StarvationState(StarvationStatus.STARVING, since)
    return StarvationState(state.status, since)
