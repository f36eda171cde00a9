"""Names and resource keys: valid and invalid texts, on which types and predicates agree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from app.domain import names

KEYS = ["g", "gpu", "memory_mb", "licence.matlab", "a-b", "a1", "a" * 63]
NO_KEYS = [
    "",
    "GPU",
    "gPu",
    "1gpu",
    "_gpu",
    ".gpu",
    "bad key",
    "gpu\n",
    "\ngpu",
    "gpu,",
    "gpu=1",
    "a:b",
    "{a}",
    "a|b",
    "a/b",
    "é",
    "a" * 64,
]

NAMES = ["t", "T", "9", "team-ml-orch", "step_operator", "eu-west.gpu", "default", "A" * 63]
NO_NAMES = [
    "",
    "-t",
    ".t",
    "_t",
    "no spaces {here}",
    "t\n",
    "t\r\n",
    "\nt",
    "t ",
    "a:b",
    "{a}",
    "a}b",
    "a|b",
    "a/b",
    "ü",
    "٣",
    "A" * 64,
]

IDEMPOTENCY_KEYS = ["k1", " ", "~", "{a}:b|c", "6f1e-" * 51]
NO_IDEMPOTENCY_KEYS = ["", "k\n", "k\t", "\x7f", "é", "k" * 256]

LABELS = ["team", "zenml.io/run", "Run_1", "a" * 63]
NO_LABELS = ["", "/run", "my label", "a=b", "a:b", "run\n", "a" * 64]


def accepts(kind: Any, text: object) -> bool:
    """True if pydantic accepts the text for this kind."""
    try:
        TypeAdapter(kind).validate_python(text)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("text", KEYS)
def test_a_key(text: str) -> None:
    assert accepts(names.ResourceKey, text)


@pytest.mark.parametrize("text", NO_KEYS)
def test_no_key(text: str) -> None:
    assert not accepts(names.ResourceKey, text)


@pytest.mark.parametrize("text", NAMES)
def test_a_name(text: str) -> None:
    assert names.is_name(text)
    assert accepts(names.Name, text)


@pytest.mark.parametrize("text", NO_NAMES)
def test_no_name(text: str) -> None:
    assert not names.is_name(text)
    assert not accepts(names.Name, text)


@pytest.mark.parametrize("text", IDEMPOTENCY_KEYS)
def test_an_idempotency_key(text: str) -> None:
    assert names.is_idempotency_key(text)
    assert accepts(names.IdempotencyKey, text)


@pytest.mark.parametrize("text", NO_IDEMPOTENCY_KEYS)
def test_no_idempotency_key(text: str) -> None:
    assert not names.is_idempotency_key(text)
    assert not accepts(names.IdempotencyKey, text)


@pytest.mark.parametrize("text", LABELS)
def test_a_label(text: str) -> None:
    assert accepts(names.LabelKey, text)


@pytest.mark.parametrize("text", NO_LABELS)
def test_no_label(text: str) -> None:
    assert not accepts(names.LabelKey, text)


@pytest.mark.parametrize("value", [1, True, None, b"gpu", ["gpu"], 1.5], ids=repr)
def test_only_text_is_a_name(value: object) -> None:
    assert not any(accepts(kind, value) for kind in (names.ResourceKey, names.Name, names.LabelKey, names.IdempotencyKey))


@given(st.text(max_size=70) | st.from_regex(r"[a-zA-Z0-9_.-]{1,66}\n?", fullmatch=True))
@example("gpu\n")
def test_types_and_predicates_agree(text: str) -> None:
    assert names.is_name(text) == accepts(names.Name, text)
    assert names.is_idempotency_key(text) == accepts(names.IdempotencyKey, text)


@given(st.from_regex(names.NAME_PATTERN, alphabet=st.characters(codec="utf-8")).filter(names.is_name))
def test_no_name_holds_what_separates_the_parts_of_a_redis_key(name: str) -> None:
    assert not set(name) & set(":{}|/,= \n")


def test_every_pattern_is_explained() -> None:
    patterns = {value for constant, value in vars(names).items() if constant.endswith("_PATTERN")}
    assert patterns == set(names.PATTERN_TEXTS)


def test_a_component_is_written_with_its_type() -> None:
    assert names.component_id("orchestrator", "team") == "orchestrator/team"
