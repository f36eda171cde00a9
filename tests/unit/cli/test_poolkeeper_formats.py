"""Input and output formats: amounts, durations, settings, ages; and tables."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import pytest
from poolkeeper import formatting
from poolkeeper.cli import param_types, pool_settings
from poolkeeper.cli.param_types import parse_amounts, parse_duration

from app.domain.pool_setting_models import AccountSettings, PoolSettings


@pytest.mark.parametrize(
    "written",
    ["gpu=2,mcpu=4000", " gpu = 2 , mcpu=4000", '{"gpu": 2, "mcpu": 4000}', "gpu: 2\nmcpu: 4000", "{gpu: 2, mcpu: 4000}"],
)
def test_amounts_are_pairs_json_or_yaml(written: str) -> None:
    assert parse_amounts(written) == {"gpu": 2, "mcpu": 4000}


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("", "is empty"),
        ("gpu", "'gpu' is no amount; write it like gpu=2"),
        ("gpu=", "'gpu=' is no amount"),
        ("=2", "'=2' is no amount"),
        ("gpu=2,,mcpu=1", "'' is no amount"),
        ("gpu=1.5", "gpu: must be a whole number, not 1.5"),
        ("gpu=-1", "gpu: must be a whole number, not -1"),
        ("gpu=two", "gpu: must be a whole number, not two"),
        ("gpu=1e3", "gpu: must be a whole number, not 1e3"),
        ("gpu=²", "gpu: must be a whole number, not ²"),
        ('{"gpu": 1.5}', "gpu: must be a whole number, not 1.5"),
        ('{"gpu": true}', "gpu: must be a whole number, not true"),
        ('{"gpu": {"count": 1}}', "gpu: must be a whole number"),
        ('{"gpu": null}', "gpu: must be a whole number, not null"),
        ("[gpu, mcpu]", "is no amount"),
        ('{"gpu": 1', "neither KEY=UNITS"),
        ("gpu=1,gpu=2", "gpu is given twice"),
        ('{"gpu": 1, "gpu": 2}', "gpu is given twice"),
        ("gpu=none", "gpu: must be a whole number, not none"),
        (f"gpu={2**53}", f"gpu: must be at most {2**53 - 1}"),
        ("gpu=" + "9" * 5000, f"gpu: must be at most {2**53 - 1}"),
    ],
)
def test_what_is_no_amount_is_said(written: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as wrong:
        parse_amounts(written)
    assert message in str(wrong.value)


def test_numbers_stay_as_they_were_written() -> None:
    assert parse_amounts("gpu: 010\nmcpu: 9007199254740991") == {"gpu": 10, "mcpu": 2**53 - 1}


def test_a_key_can_be_taken_away_where_that_means_something() -> None:
    assert parse_amounts("gpu=none,mcpu=1", removable=True) == {"gpu": None, "mcpu": 1}


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90", 90), ("90s", 90), ("15m", 900), ("2h", 7200), ("1d", 86400), ("1h30m", 5400), ("1d1h1m1s", 90061), ("0", 0)],
)
def test_durations(written: str, seconds: int) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize("written", ["", " ", "m", "1x", "1.5h", "-1", "30m1h", "1h 30m", "none", "٣m"])
def test_what_is_no_duration(written: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - it has no message of its own
        parse_duration(written)


@pytest.mark.parametrize(("seconds", "shown"), [(None, "none"), (0, "0s"), (90, "1m30s"), (7200, "2h"), (90061, "1d1h1m1s")])
def test_durations_are_shown_as_they_are_typed(seconds: int | None, shown: str) -> None:
    assert formatting.duration(seconds) == shown
    assert seconds is None or parse_duration(shown) == seconds


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("queueing=strict", {"queueing": "strict"}),
        ("patience_s=5m", {"patience_s": 300}),
        ("patience_s=300", {"patience_s": 300}),
        ("patience_s=none", {"patience_s": None}),
        ("max_victims=3", {"max_victims": 3}),
        ("requeue_failed_checkpoint=false", {"requeue_failed_checkpoint": False}),
        ("requeue_failed_checkpoint=true", {"requeue_failed_checkpoint": True}),
        ("cost_key=gpu", {"cost_key": "gpu"}),
        ("value_per_class=9007199254740991", {"value_per_class": 2**53 - 1}),
        ("fair_share_tolerance=0.8", {"fair_share_tolerance": 0.8}),
        ("preemption_threshold=1", {"preemption_threshold": 1}),
        ("preemption_threshold=-0.5", {"preemption_threshold": -0.5}),
        ("preemption_threshold=1e-7", {"preemption_threshold": "1e-7"}),
        ("starvation_timeout_s=2m", {"starvation_timeout_s": 120}),
        ("non_preemptible_usage_threshold=gpu=2", {"non_preemptible_usage_threshold": {"gpu": 2}}),
        ("non_preemptible_usage_threshold = gpu=2,mcpu=0", {"non_preemptible_usage_threshold": {"gpu": 2, "mcpu": 0}}),
        ('non_preemptible_usage_threshold={"gpu": 2}', {"non_preemptible_usage_threshold": {"gpu": 2}}),
        ("non_preemptible_usage_threshold=none", {"non_preemptible_usage_threshold": {}}),
        ("patience_s=soon", {"patience_s": "soon"}),  # what it may be is for the service to say
    ],
)
def test_settings(written: str, value: dict[str, object]) -> None:
    assert param_types.Setting().convert(written, None, None) == value


@pytest.mark.parametrize(
    ("timestamp", "shown"),
    [
        ("2026-01-31T11:59:59.500Z", "0s"),
        ("2026-01-31T11:58:01.000Z", "119s"),
        ("2026-01-31T11:58:00.000Z", "2m"),
        ("2026-01-31T10:00:00.000Z", "2h"),
        ("2026-01-29T12:00:00.000Z", "2d"),
        ("2026-01-31T12:00:05.000Z", "0s"),  # the clocks differ
        (None, "-"),
    ],
)
def test_ages(timestamp: str | None, shown: str) -> None:
    assert formatting.age(timestamp, datetime(2026, 1, 31, 12, tzinfo=UTC)) == shown


def test_settings_are_shown_as_they_are_typed() -> None:
    shown = formatting.pairs({"patience_s": None, "max_victims": 3, "requeue_failed_checkpoint": False})
    assert shown == "patience_s=none max_victims=3 requeue_failed_checkpoint=false"
    amounts = {"non_preemptible_usage_threshold": {"gpu": 2, "mcpu": 0}}
    shown = formatting.pairs({"fair_share_tolerance": 1e-06, "preemption_threshold": 1.50, "over_limit": "keep", **amounts})
    assert shown == (
        "fair_share_tolerance=0.000001 preemption_threshold=1.5 over_limit=keep non_preemptible_usage_threshold=gpu=2,mcpu=0"
    )
    assert formatting.pairs({"non_preemptible_usage_threshold": {}}) == "non_preemptible_usage_threshold=none"


@pytest.mark.parametrize(
    ("discipline", "shown"),
    [
        ("reserved", ["0 (as the discipline)", "7", "none", "keep (as the discipline)"]),
        ("classes", ["300 (as the discipline)", "7", "none", "keep (as the discipline)"]),
        ("fair_share", ["0 (as the discipline)", "7", "none", "evict (as the discipline)"]),
        ("of tomorrow", ["none", "7", "none", "none"]),
    ],
)
def test_a_setting_that_is_left_to_the_discipline_shows_what_that_has(discipline: str, shown: list[str]) -> None:
    settings = {"discipline": discipline, "near_completion_s": None, "max_victims": 7, "patience_s": None, "over_limit": None}
    assert [row["value"] for row in pool_settings.setting_rows(settings)[1:]] == shown


def test_a_setting_is_listed_beside_its_default() -> None:
    settings = {"discipline": "fair_share", "patience_s": 60, "backoff_s": 9}
    rows = {row["name"]: row for row in pool_settings.setting_rows(settings)}
    assert rows["patience_s"] == {"name": "patience_s", "value": "60", "default": "300"}
    assert rows["backoff_s"] == {"name": "backoff_s", "value": "9", "default": "5 (as the discipline)"}


def test_changed_settings_are_those_that_differ_from_their_default() -> None:
    defaults = PoolSettings().model_dump()
    assert pool_settings.changed_settings(defaults) == {}
    changed = {"patience_s": None, "over_limit": "keep", "non_preemptible_usage_threshold": {"gpu": 1}, "of_tomorrow": 1}
    assert pool_settings.changed_settings({**defaults, **changed}) == changed


def test_the_settings_there_are_are_those_of_the_service() -> None:
    assert list(pool_settings.POOL_SETTINGS) == list(PoolSettings.model_fields)
    assert list(pool_settings.ACCOUNT_SETTINGS) == list(AccountSettings.model_fields)
    for names, model in ((pool_settings.POOL_SETTINGS, PoolSettings), (pool_settings.ACCOUNT_SETTINGS, AccountSettings)):
        for name, words in names.items():
            for word in words:
                model.model_validate(param_types.Setting().convert(f"{name}={word}", None, None))


def test_what_is_no_amount_of_a_setting_is_said() -> None:
    with pytest.raises(click.BadParameter, match=r"usage_threshold: gpu: must be a whole number, not 1\.5"):
        param_types.Setting().convert("non_preemptible_usage_threshold=gpu=1.5", None, None)


@pytest.mark.parametrize(("count", "shown"), [(0, ""), (1, "once"), (2, "twice"), (3, "3 times")])
def test_how_often(count: int, shown: str) -> None:
    assert formatting.times(count) == shown


@pytest.mark.parametrize(
    ("directive", "deadline", "shown"),
    [
        (None, None, ""),
        ("continue", None, ""),
        ("terminate", "2026-01-31T12:00:00.000Z", "terminate until 2026-01-31 12:00:00Z"),
        ("checkpoint", None, "checkpoint"),
    ],
)
def test_what_a_holder_is_asked(directive: str | None, deadline: str | None, shown: str) -> None:
    assert formatting.directive({"directive": directive, "deadline": deadline}) == shown


def test_nothing_that_is_shown_can_steer_a_terminal() -> None:
    assert formatting.one_line("red \x1b[31m alert\x07\nand\u202e more") == "red ?[31m alert? and? more"


def test_step_run_is_shown_only_if_it_is_all_there_is() -> None:
    assert formatting.requested_amounts({"resources": {"gpu": 2, "step_run": 1}}) == "gpu=2"
    assert formatting.requested_amounts({"resources": {"step_run": 1}}) == "step_run=1"


@pytest.mark.parametrize("width", range(1, 60))
def test_a_text_is_cut_between_its_words(width: int) -> None:
    text = "python train.py --epochs 9 --data /of/the/lab"
    shown = formatting.shorten(text, width)
    assert len(shown) <= width
    assert shown == text or (shown.endswith("…") and (f"{text} ".startswith(f"{shown[:-1]} ") or width <= len("python")))


def test_a_word_that_is_too_long_is_cut() -> None:
    assert formatting.shorten("x" * 41) == "x" * 39 + "…"
    assert formatting.shorten("a\nb") == "a b"


@pytest.mark.parametrize(
    ("outcome", "code", "shown"),
    [
        ("succeeded", 0, "succeeded, exit 0"),
        ("failed", 3, "failed, exit 3"),
        ("failed", -9, "failed, SIGKILL"),
        ("failed", -60, "failed, signal 60"),
        ("failed", None, "failed"),
        (None, None, ""),
    ],
)
def test_the_end_of_the_work(outcome: str | None, code: int | None, shown: str) -> None:
    assert formatting.outcome({"outcome": outcome, "exit_code": code}) == shown
