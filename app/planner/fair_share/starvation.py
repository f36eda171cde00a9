"""Starvation: the state of an account below its fair share, and the settings that bound its duration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from app.domain.amounts import Amounts, decode
from app.domain.pool_settings import SETTINGS, default_value


class StarvationStatus(StrEnum):
    """The urgency of an account's demand."""

    NON_STARVING = "non_starving"
    STARVING = "starving"
    AGGRESSIVELY_STARVING = "aggressively_starving"


_TOLERANCE, _THRESHOLD, _AGGRESSIVE_THRESHOLD = (
    Fraction(str(default_value(setting)))
    for setting in ("fair_share_tolerance", "preemption_threshold", "aggressive_preemption_threshold")
)


@dataclass(frozen=True, slots=True)
class StarvationSettings:
    """The time that an account waits for its fair share, and the part of its running work that is protected."""

    tolerance: Fraction = _TOLERANCE
    """The part of its fair share below which an account is below its fair share."""
    timeout_s: int = default_value("starvation_timeout_s")
    may_starve_aggressively: bool = default_value("aggressive_starvation")
    """True if the account may starve aggressively."""
    aggressive_timeout_s: int = default_value("aggressive_starvation_timeout_s")
    threshold: Fraction = _THRESHOLD
    """The part of the fair share beyond which running work is preemptible."""
    aggressive_threshold: Fraction = _AGGRESSIVE_THRESHOLD
    """The part of the fair share beyond which running work is preemptible by aggressively starving accounts."""
    allow_aggressive: bool = default_value("allow_aggressive_preemption")
    protected_usage: Amounts = field(default_factory=lambda: dict(default_value("non_preemptible_usage_threshold")))
    """The units per key of running work that is never preemptible; empty is none."""


@dataclass(frozen=True, slots=True)
class StarvationState:
    """The status of an account, and the time (ms) at which it fell below its fair share; None if it is not below."""

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
"""Name of a setting in Redis → its field, and the function that reads its value."""


def read_pool_settings(texts: Mapping[str, str]) -> StarvationSettings:
    """Return the settings of a pool. Settings without a value have their defaults."""
    return replace(StarvationSettings(), **_read(texts))


def inherit_settings(inherited: StarvationSettings, texts: Mapping[str, str], is_policy: bool) -> StarvationSettings:
    """Return the settings of an account below another. A group's own settings replace the inherited ones. A policy's own
    settings can only make it more patient."""
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
    """Return the smaller amount of each key. A key that only one side names keeps its amount."""
    return {key: min(amounts[key] for amounts in (left, right) if key in amounts) for key in sorted({*left, *right})}


def next_state(
    state: StarvationState, is_below: bool, now_ms: int, settings: StarvationSettings, queued: int | None
) -> StarvationState:
    """Return the state of an account now. `queued` is the number of queued requests of a leaf, or None for a group.

    A leaf without queued requests does not starve. A time in the future counts as now, so a clock that was set back makes no
    account starve.
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
