"""Starvation, and the settings that decide it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from app.planner.fair_share.starvation import (
    StarvationSettings,
    StarvationState,
    StarvationStatus,
    inherit_settings,
    next_state,
    read_pool_settings,
)

NORMAL, STARVING, AGGRESSIVE = StarvationStatus.NON_STARVING, StarvationStatus.STARVING, StarvationStatus.AGGRESSIVELY_STARVING
FIERCE = StarvationSettings(may_starve_aggressively=True)
NOW = 1_000_000


def test_an_account_that_falls_below_is_below_since_now() -> None:
    assert next_state(StarvationState(), True, NOW, FIERCE, 1) == StarvationState(NORMAL, NOW)


@pytest.mark.parametrize(
    ("waited_ms", "patience", "expected"),
    [
        (30_000, FIERCE, NORMAL),
        (30_001, FIERCE, STARVING),
        (120_000, FIERCE, STARVING),
        (120_001, FIERCE, AGGRESSIVE),
        (120_001, StarvationSettings(), STARVING),
        (5_001, StarvationSettings(timeout_s=5), STARVING),
        (7_001, StarvationSettings(may_starve_aggressively=True, aggressive_timeout_s=7), AGGRESSIVE),
    ],
)
@pytest.mark.parametrize("queued", [1, 40, None])
def test_an_account_that_stays_below_starves_after_its_timeout(
    waited_ms: int, patience: StarvationSettings, expected: StarvationStatus, queued: int | None
) -> None:
    assert next_state(StarvationState(NORMAL, NOW), True, NOW + waited_ms, patience, queued) == StarvationState(expected, NOW)


@pytest.mark.parametrize("status", StarvationStatus)
def test_an_account_that_is_no_longer_below_does_not_starve(status: StarvationStatus) -> None:
    assert next_state(StarvationState(status, NOW), False, NOW + 200_000, FIERCE, 1) == StarvationState(NORMAL, None)


@pytest.mark.parametrize(("status", "patience"), [(STARVING, StarvationSettings(timeout_s=500)), (AGGRESSIVE, FIERCE)])
def test_a_starving_account_still_starves_when_the_timeout_grows(
    status: StarvationStatus, patience: StarvationSettings
) -> None:
    assert next_state(StarvationState(status, NOW), True, NOW + 20_000, patience, 1) == StarvationState(status, NOW)


def test_aggressive_starvation_becomes_plain_when_no_longer_allowed() -> None:
    assert next_state(StarvationState(AGGRESSIVE, NOW), True, NOW + 200_000, StarvationSettings(), 1) == StarvationState(
        STARVING, NOW
    )


def test_a_leaf_with_nothing_queued_has_no_time_to_wait_out() -> None:
    assert next_state(StarvationState(NORMAL, NOW), True, NOW, StarvationSettings(), 0) == StarvationState(NORMAL, NOW)
    assert next_state(StarvationState(NORMAL, NOW), True, NOW + 1, StarvationSettings(), 0) == StarvationState(STARVING, NOW)


def test_a_clock_that_was_set_back_makes_no_account_starve() -> None:
    back = next_state(StarvationState(NORMAL, NOW), True, NOW - 500_000, FIERCE, 1)
    assert back == StarvationState(NORMAL, NOW - 500_000)
    assert next_state(back, True, NOW - 470_000, FIERCE, 1) == back


# Settings


def test_a_pool_that_says_nothing_is_as_usual() -> None:
    usual = StarvationSettings(Fraction(4, 5), 30, False, 120, Fraction(1), Fraction(1, 5), True, {})
    assert read_pool_settings({}) == usual


SAID = {
    "fair_share_tolerance": "0.95",
    "starvation_timeout_s": "5",
    "aggressive_starvation": "1",
    "aggressive_starvation_timeout_s": "60",
    "preemption_threshold": "1.25",
    "aggressive_preemption_threshold": "0.1",
    "allow_aggressive_preemption": "0",
    "non_preemptible_usage_threshold": "gpu=2,mem=4",
}
ALL = StarvationSettings(Fraction("0.95"), 5, True, 60, Fraction("1.25"), Fraction("0.1"), False, {"gpu": 2, "mem": 4})


def test_settings_are_read_as_they_stand() -> None:
    assert read_pool_settings(SAID) == ALL
    assert inherit_settings(read_pool_settings({}), SAID, is_policy=False) == ALL


@pytest.mark.parametrize("is_policy", [True, False])
def test_an_account_without_settings_inherits(is_policy: bool) -> None:
    assert inherit_settings(ALL, {}, is_policy) == ALL
    assert inherit_settings(ALL, dict.fromkeys(SAID, ""), is_policy) == ALL


def test_settings_that_are_none_of_these_do_not_matter() -> None:
    assert read_pool_settings({"discipline": "fair_share", "grace_s": "30"}) == StarvationSettings()


def test_a_group_replaces_what_it_says() -> None:
    impatient = {"starvation_timeout_s": "0", "non_preemptible_usage_threshold": "gpu=9", "aggressive_starvation": "0"}
    settings = inherit_settings(ALL, impatient, is_policy=False)
    assert (settings.timeout_s, settings.protected_usage, settings.may_starve_aggressively, settings.tolerance) == (
        0,
        {"gpu": 9},
        False,
        ALL.tolerance,
    )


@pytest.mark.parametrize(
    ("texts", "field", "expected"),
    [
        ({"fair_share_tolerance": "1"}, "tolerance", Fraction("0.95")),
        ({"fair_share_tolerance": "0.5"}, "tolerance", Fraction(1, 2)),
        ({"starvation_timeout_s": "1"}, "timeout_s", 5),
        ({"starvation_timeout_s": "9"}, "timeout_s", 9),
        ({"aggressive_starvation_timeout_s": "1"}, "aggressive_timeout_s", 60),
        ({"aggressive_starvation_timeout_s": "90"}, "aggressive_timeout_s", 90),
        ({"aggressive_starvation": "0"}, "may_starve_aggressively", False),
        ({"aggressive_starvation": "1"}, "may_starve_aggressively", True),
        ({"preemption_threshold": "0.5"}, "threshold", Fraction(1, 2)),
        ({"aggressive_preemption_threshold": "0.5"}, "aggressive_threshold", Fraction(1, 2)),
        ({"allow_aggressive_preemption": "1"}, "allow_aggressive", True),
        ({"non_preemptible_usage_threshold": "gpu=9,mem=3,slots=5"}, "protected_usage", {"gpu": 2, "mem": 3, "slots": 5}),
    ],
)
def test_a_policy_is_never_less_patient_than_what_it_inherits(texts: dict[str, str], field: str, expected: object) -> None:
    assert getattr(inherit_settings(ALL, texts, is_policy=True), field) == expected


def test_a_policy_does_not_starve_aggressively_where_its_group_does_not() -> None:
    assert not inherit_settings(StarvationSettings(), {"aggressive_starvation": "1"}, is_policy=True).may_starve_aggressively


def test_what_a_policy_protects_counts_where_nothing_is_protected() -> None:
    assert inherit_settings(
        StarvationSettings(), {"non_preemptible_usage_threshold": "gpu=7"}, is_policy=True
    ).protected_usage == {"gpu": 7}
