"""Amounts: their text form, and the merge of typed resources."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.amounts import BYTES, MAX_CPUS, MAX_KEYS, UNBOUNDED, decode, encode, mcpu, memory_mb, merge_resources
from app.domain.queue_score import MAX_AMOUNT
from app.domain.specs import ResourceSettings

keys = st.from_regex(r"[a-z][a-z0-9_.-]{0,62}", fullmatch=True)
units = st.integers(1, MAX_AMOUNT)
amounts = st.dictionaries(keys, units, max_size=MAX_KEYS)


def merged(resources: Mapping[str, int] | None = None, **settings: Any) -> dict[str, int]:
    return merge_resources(resources or {}, ResourceSettings(**settings))


@pytest.mark.parametrize(
    ("amounts", "text"),
    [
        ({}, ""),
        ({"gpu": 2}, "gpu=2"),
        ({"mcpu": 4000, "gpu": 2}, "gpu=2,mcpu=4000"),
        ({"b": 1, "a-b": 2, "a.b": 3, "a": 4, "a_b": 5}, "a=4,a-b=2,a.b=3,a_b=5,b=1"),
        ({"gpu": MAX_AMOUNT}, "gpu=9007199254740991"),
    ],
)
def test_written_as_one_text(amounts: dict[str, int], text: str) -> None:
    assert encode(amounts) == text
    assert decode(text) == amounts


@given(amounts)
def test_what_is_written_is_read(resources: dict[str, int]) -> None:
    assert decode(encode(resources)) == resources


@given(amounts, st.randoms())
def test_equal_amounts_are_one_text(resources: dict[str, int], random: Any) -> None:
    shuffled = list(resources.items())
    random.shuffle(shuffled)
    assert encode(dict(shuffled)) == encode(resources)


@pytest.mark.parametrize(
    ("cpus", "thousandths"),
    [
        (4, 4000),
        (4.0, 4000),
        (0.29, 290),
        (0.57, 570),
        (1.1, 1100),
        (2.3, 2300),
        (1.0005, 1001),
        (0.001, 1),
        (0.0001, 1),
        (1e-7, 1),
        (5e-324, 1),
        (0, 0),
        (0.0, 0),
        (-0.0, 0),
        (1e3, 1_000_000),
        (MAX_CPUS, 9_007_199_254_740_000),
    ],
)
def test_cpus_in_thousandths_rounded_up(cpus: float, thousandths: int) -> None:
    assert mcpu(cpus) == thousandths


@pytest.mark.parametrize(
    "cpus",
    [
        -1,
        -0.5,
        -5e-324,
        float("nan"),
        float("inf"),
        float("-inf"),
        MAX_CPUS + 1,
        1e308,
        10**400,
        True,
        False,
        "1",
        None,
        Decimal(1),
    ],
)
def test_no_number_of_cpus(cpus: Any) -> None:
    with pytest.raises(ValueError, match="must be a number from 0"):
        mcpu(cpus)


@given(st.integers(0, 10**9))
def test_whole_thousandths_stay_what_they_are(thousandths: int) -> None:
    assert mcpu(thousandths / 1000) == thousandths


@given(st.decimals(0, 10**6, places=6, allow_nan=False))
def test_cpus_are_computed_in_decimals(cpus: Decimal) -> None:
    assert mcpu(float(cpus)) == ceil(cpus * 1000)


@pytest.mark.parametrize(
    ("memory", "megabytes"),
    [
        ("16GiB", 17180),
        ("8GiB", 8590),
        ("2GiB", 2148),
        ("64GiB", 68720),
        ("512MB", 512),
        ("1KB", 1),
        ("1KiB", 1),
        ("1000KB", 1),
        ("1001KB", 2),
        ("1MiB", 2),
        ("1GB", 1000),
        ("1TB", 10**6),
        ("1TiB", 1_099_512),
        ("1PB", 10**9),
        ("1PiB", 1_125_899_907),
        ("1.5GiB", 1611),
        ("0.29GB", 290),
        ("0.0001MB", 1),
        ("007MB", 7),
        ("0MB", 0),
        ("0.0PiB", 0),
        ("9007199254740991MB", MAX_AMOUNT),
    ],
)
def test_memory_in_megabytes_rounded_up(memory: str, megabytes: int) -> None:
    assert memory_mb(memory) == megabytes


@pytest.mark.parametrize(
    "memory",
    [
        *["16GX", "16B", "16Gi", "16gib", "1EB", "16", "GiB", "", "16GiBGiB"],
        *["16 GiB", " 16GiB", "16GiB ", "16GiB\n"],
        *[
            "-16GiB",
            "+1GB",
            "1e3MB",
            "1,5GB",
            ".5GB",
            "1.GB",
            "1.2.3GB",
            "0x10MB",
            "1_000MB",
            "٣GB",
            "infGB",
            "nanMB",
            "9" * 19 + "KB",
        ],
    ],
)
def test_no_memory(memory: str) -> None:
    with pytest.raises(ValueError, match="must be a number and one of KB KiB MB"):
        memory_mb(memory)


@pytest.mark.parametrize("memory", ["9007199254740992MB", "9007199254740991.1MB", "999999999999PiB"])
def test_more_memory_than_can_be_counted(memory: str) -> None:
    with pytest.raises(ValueError, match="must be at most 9007199254740991 megabytes"):
        memory_mb(memory)


@given(st.integers(0, 10**6), st.sampled_from(sorted(BYTES)))
def test_memory_is_never_less_than_asked_and_never_a_megabyte_more(number: int, unit: str) -> None:
    assert 0 <= memory_mb(f"{number}{unit}") * 10**6 - number * BYTES[unit] < 10**6


@given(st.decimals(0, 10**6, places=9, allow_nan=False), st.sampled_from(sorted(BYTES)))
def test_memory_is_computed_in_decimals(number: Decimal, unit: str) -> None:
    text = f"{number:f}"
    assert memory_mb(f"{text}{unit}") == -(-int(text.replace(".", "")) * BYTES[unit] // (10**6 * 10**9))


def test_units_are_those_documented() -> None:
    assert list(BYTES) == ["KB", "KiB", "MB", "MiB", "GB", "GiB", "TB", "TiB", "PB", "PiB"]
    assert (BYTES["KB"], BYTES["KiB"], BYTES["GB"], BYTES["PiB"]) == (10**3, 2**10, 10**9, 2**50)


def test_settings_become_amounts() -> None:
    amounts = merged(gpu_count=2, cpu_count=4, memory="16GiB", pool_resources={"tensorrt_sessions": 1})
    assert amounts == {"gpu": 2, "mcpu": 4000, "memory_mb": 17180, "tensorrt_sessions": 1, "step_run": 1}


def test_typed_fields_win_over_pool_resources() -> None:
    amounts = merged(cpu_count=0.29, memory="512MB", gpu_count=1, pool_resources={"gpu": 3, "mcpu": 9, "step_run": 7})
    assert amounts == {"gpu": 1, "mcpu": 290, "memory_mb": 512, "step_run": 1}


def test_pool_resources_win_over_resources_and_typed_fields_over_both() -> None:
    amounts = merged({"gpu": 1, "licence": 1, "mcpu": 1}, cpu_count=1, pool_resources={"gpu": 2, "mcpu": 2})
    assert amounts == {"gpu": 2, "licence": 1, "mcpu": 1000, "step_run": 1}


@pytest.mark.parametrize(
    ("key", "zero"), [("gpu", {"gpu_count": 0}), ("mcpu", {"cpu_count": 0}), ("memory_mb", {"memory": "0MB"})]
)
def test_a_typed_zero_removes_its_key(key: str, zero: dict[str, Any]) -> None:
    assert merged({key: 3, "a": 1}, pool_resources={key: 4}, **zero) == {"a": 1, "step_run": 1}


def test_what_is_not_typed_stays() -> None:
    assert merged({"gpu": 1, "mcpu": 2, "memory_mb": 3}) == {"gpu": 1, "mcpu": 2, "memory_mb": 3, "step_run": 1}


@pytest.mark.parametrize("resources", [{}, {"step_run": 7}])
def test_everything_asks_for_one_step_run(resources: dict[str, int]) -> None:
    assert merged(resources) == {"step_run": 1}
    assert merged(resources, pool_resources={"step_run": 9}) == {"step_run": 1}


def test_nothing_given_is_changed() -> None:
    resources = {"gpu": 1, "step_run": 2}
    merged(resources, gpu_count=0)
    assert resources == {"gpu": 1, "step_run": 2}


def test_as_many_keys_as_allowed_beside_step_run() -> None:
    resources = {f"k{i}": 1 for i in range(MAX_KEYS)}
    assert merged(resources) == {**resources, "step_run": 1}
    with pytest.raises(ValueError, match="at most 32 keys, not 33"):
        merged(resources, gpu_count=1)
    assert len(merged(resources, gpu_count=0)) == MAX_KEYS + 1


@given(
    st.dictionaries(keys, units, max_size=6),
    st.dictionaries(keys, units, max_size=6),
    st.none() | st.integers(0, MAX_AMOUNT),
    st.none() | st.floats(0, MAX_CPUS),
    st.none() | st.integers(0, 10**6).map(lambda number: f"{number}GiB"),
)
def test_every_amount_can_be_counted(
    resources: dict[str, int], pool_resources: dict[str, int], gpus: int | None, cpus: float | None, memory: str | None
) -> None:
    amounts = merged(resources, pool_resources=pool_resources, gpu_count=gpus, cpu_count=cpus, memory=memory)
    assert amounts["step_run"] == 1
    assert all(type(amount) is int and 1 <= amount <= MAX_AMOUNT for amount in amounts.values())
    assert amounts.keys() <= resources.keys() | pool_resources.keys() | {"gpu", "mcpu", "memory_mb", "step_run"}


def test_the_unbounded_keys() -> None:
    assert {"mcpu", "memory_mb", "step_run"} == UNBOUNDED
