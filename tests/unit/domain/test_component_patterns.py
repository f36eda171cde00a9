"""Patterns of components in a token: each matches exactly its components."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.names import is_component_pattern, is_name
from app.domain.tokens import Role, Token

TOKEN = Token(id="1", name="one", role=Role.REQUESTER, workspaces=("default",))
CHARACTERS = "aA0_.-"
names = st.text(CHARACTERS, min_size=1, max_size=4).filter(lambda text: text[0] in "aA0")
types = st.sampled_from(["orchestrator", "intern", "intern-2", "Intern", "a", "a.b"])
rests = st.text(CHARACTERS, max_size=3).filter(lambda text: not text or text[0] in "aA0")


@given(types, names, types, rests)
def test_a_pattern_reaches_what_has_its_type_and_its_beginning(kind: str, name: str, own_kind: str, rest: str) -> None:
    token = replace(TOKEN, components=(f"{own_kind}/{rest}*",))
    expected = kind == own_kind and name[: len(rest)] == rest
    assert token.can_act_for(kind, name) is expected
    assert token.can_see(kind, name) is expected


@given(types, names, st.lists(st.tuples(types, names), max_size=4))
def test_a_name_without_a_star_reaches_that_component_alone(kind: str, name: str, listed: list[tuple[str, str]]) -> None:
    token = replace(TOKEN, components=tuple("/".join(each) for each in listed))
    assert token.can_act_for(kind, name) is ((kind, name) in listed)


@given(types, names, st.lists(st.one_of(names, rests.map("{}*".format)), min_size=1, max_size=4))
def test_a_token_reaches_what_one_of_its_entries_reaches(kind: str, name: str, entries: list[str]) -> None:
    each = [replace(TOKEN, components=(entry,)).can_act_for(kind, name) for entry in entries]
    assert replace(TOKEN, components=tuple(entries)).can_act_for(kind, name) is any(each)


@pytest.mark.parametrize(
    ("pattern", "reached", "not_reached"),
    [
        ("intern/*", ["intern/ana", "intern/a.b"], ["orchestrator/ana", "intern-2/ana", "Intern/ana"]),
        (
            "intern/user-*",
            ["intern/user-1", "intern/user-"],
            ["intern/user", "intern/User-1", "intern/xuser-1", "a/user-1"],
        ),
        ("user-*", ["orchestrator/user-1"], ["intern/user-1"]),
        ("*", ["orchestrator/ana"], ["intern/ana"]),
        ("intern/u.r*", ["intern/u.r1"], ["intern/uxr1"]),
    ],
)
def test_examples(pattern: str, reached: list[str], not_reached: list[str]) -> None:
    token = replace(TOKEN, components=(pattern,))
    assert [component for component in reached if not token.can_act_for(*component.split("/"))] == []
    assert [component for component in not_reached if token.can_act_for(*component.split("/"))] == []


GOOD = ["ml", "*", "user-*", "intern/*", "intern/user-*", "batch/nightly", "a" * 63, "a" * 62 + "*"]
GOOD += ["i" * 63 + "/" + "n" * 62 + "*"]
BAD = ["", "/", "*/*", "*/ml", "intern*/x", "in*tern/x", "a**", "**", "*a", "a*b", "intern/", "/x", "a/b/c", "a/b/*", "-x*"]
BAD += [".*", "intern/ *", "x\n", "x*\n", "a" * 64, "a" * 63 + "*", "ünter*", "a:b*", "{a}*", "intern/*/x", "a?", "[ab]*"]


@pytest.mark.parametrize("pattern", GOOD)
def test_a_pattern_has_one_star_at_its_end(pattern: str) -> None:
    assert is_component_pattern(pattern)


@pytest.mark.parametrize("pattern", BAD)
def test_other_patterns_are_none(pattern: str) -> None:
    assert not is_component_pattern(pattern)


@given(st.text(max_size=8))
def test_a_pattern_is_a_name_with_at_most_a_star_after_it(text: str) -> None:
    type_part, slash, name = text.rpartition("/")
    has_type = not slash or is_name(type_part)
    assert is_component_pattern(text) is (has_type and (name == "*" or is_name(name.removesuffix("*"))) and len(name) <= 63)
