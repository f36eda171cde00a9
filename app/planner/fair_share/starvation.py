"""Starvation: an account that is below its fair share for too long, and the settings that say how long that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from app.domain.amounts import Amounts, decode
from app.domain.pool_settings import SETTINGS, default_value


class StarvationStatus(StrEnum):
    """How urgent an account's demand is."""

    NON_STARVING = "non_starving"
    STARVING = "starving"
    AGGRESSIVELY_STARVING = "aggressively_starving"


_TOLERANCE, _THRESHOLD, _AGGRESSIVE_THRESHOLD = (
    Fraction(str(default_value(setting)))
    for setting in ("fair_share_tolerance", "preemption_threshold", "aggressive_preemption_threshold")
)


@dataclass(frozen=True, slots=True)
class StarvationSettings:
    """How long an account waits for its fair share, and how much of its running work is protected."""

    tolerance: Fraction = _TOLERANCE
    """The account is below its fair share if it has less than this part of it."""
    timeout_s: int = default_value("starvation_timeout_s")
    may_starve_aggressively: bool = default_value("aggressive_starvation")
    """True if it may starve aggressively."""
    aggressive_timeout_s: int = default_value("aggressive_starvation_timeout_s")
    threshold: Fraction = _THRESHOLD
    """What runs beyond this part of the fair share is preemptible."""
    aggressive_threshold: Fraction = _AGGRESSIVE_THRESHOLD
    """What runs beyond this part of the fair share is preemptible by aggressively starving accounts."""
    allow_aggressive: bool = default_value("allow_aggressive_preemption")
    protected_usage: Amounts = field(default_factory=lambda: dict(default_value("non_preemptible_usage_threshold")))
    """So much running work is never preemptible; empty is none."""


@dataclass(frozen=True, slots=True)
class StarvationState:
    """An account's status, and since when it is below its fair share; None if it is not."""

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
"""Setting as it stands in Redis → the field, and the function that reads it."""


def read_pool_settings(texts: Mapping[str, str]) -> StarvationSettings:
    """Return a pool's own settings; those that are not set have their defaults."""
    return replace(StarvationSettings(), **_read(texts))


def inherit_settings(inherited: StarvationSettings, texts: Mapping[str, str], is_policy: bool) -> StarvationSettings:
    """Return the settings of an account below another: a group replaces what it sets, a policy can only become more patient."""
    own = _read(texts)
    return replace(inherited, **(_more_patient(inherited, own) if is_policy else own))


def _read(texts: Mapping[str, str]) -> dict[str, Any]:
    return {field: read(texts[name]) for name, (field, read) in _READERS.items() if texts.get(name)}


def _more_patient(inherited: StarvationSettings, own: dict[str, Any]) -> dict[str, Any]:
    softened = dict(own)
    for setting, (name, _) in _READERS.items():
        rule = SETTINGS[setting].more_patient
        if name not in own or not rule:
            continue
        if isinstance(own[name], Mapping):
            softened[name] = _smaller(getattr(inherited, name), own[name])
        else:
            softened[name] = (min if rule == "lower" else max)(getattr(inherited, name), own[name])
    return softened


def _smaller(left: Amounts, right: Amounts) -> Amounts:
    """Return per key the smaller amount; a key that only one side names has that amount."""
    return {key: min(amounts[key] for amounts in (left, right) if key in amounts) for key in sorted({*left, *right})}


def next_state(
    state: StarvationState, is_below: bool, now_ms: int, settings: StarvationSettings, queued: int | None
) -> StarvationState:
    """Return an account's state now. `queued` is the number of queued requests of a leaf: one without any starves for
    nothing. It is None for a group.

    A time below that lies in the future counts as now, so a clock that was set back makes no account starve.
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
