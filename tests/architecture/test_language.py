"""The language rules that a program can see: docstrings, comments, heads of Lua files and pages of the documentation.

A subject is a noun of the glossary, so words for unnamed people occur nowhere. The docstring of a function begins with a verb
of `verbs.txt`, or with "True if". No docstring opens with an interrogative. There is no list of exceptions; only licences keep
their words.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.architecture.test_project import all_files, project_files, read

VERBS = frozenset((Path(__file__).parent / "verbs.txt").read_text("utf-8").split())
UNNAMED = re.compile(r"\b(w[h]o(m|ever)?|(some|any|every)(body|one)|nobod[y])\b", re.I)
INTERROGATIVE = re.compile(r"(how|wh(at(ever)?|en|ere|ether|ich|o(m|se|ever)?|y))\b", re.I)
LUA = ("app", "store", "lua")
PARTS = ("app", "workers", "client", "integrations", "tests", "bench", "examples", "config")
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def files(suffix: str) -> list[Path]:
    """Return the project's files of the parts with code that have the suffix, relative to the root."""
    return [path for path in project_files(suffix) if path.parts[0] in PARTS]


def area_of(path: Path) -> str:
    """Return the folder of a file, at most as deep as `app/planner`."""
    return "/".join(path.parts[:-1][:2])


AREAS = sorted({area_of(path) for path in files(".py")})


def docstrings(tree: ast.Module) -> Iterator[tuple[ast.AST, int, str]]:
    """Yield each docstring with its node and line; the text below an assignment is one as well."""
    for node in ast.walk(tree):
        for before, after in itertools.pairwise([None, *getattr(node, "body", [])] if isinstance(node, Documented) else []):
            match after:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    if before is None or isinstance(before, ast.Assign | ast.AnnAssign):
                        yield before or node, after.lineno, text


def fault(node: ast.AST, text: str) -> str:
    """Return the rule that a docstring breaks, or ""."""
    word = re.split(r"[\s,;:.]", text.strip(), maxsplit=1)[0]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        if word not in VERBS and not text.startswith("True if"):
            return "the docstring of a function begins with a verb or with True if"
    elif INTERROGATIVE.match(text):
        return "a docstring opens with a noun"
    return ""


@pytest.mark.parametrize("area", AREAS)
def test_docstrings_begin_with_a_verb_or_a_noun(area: str) -> None:
    rows = [
        f"{path}:{line}: {rule}: {text.strip()}"
        for path in files(".py")
        if area_of(path) == area
        for node, line, text in docstrings(ast.parse(read(path)))
        if (rule := fault(node, text.strip()))
    ]
    assert rows == [], "rewrite these docstrings, or add a real verb to tests/architecture/verbs.txt"


@pytest.mark.parametrize(
    ("definition", "docstring", "is_right"),
    [
        ("def f():", "Return it.", True),
        ("def f():", "True if it holds.", True),
        ("def f():", "The sum.", False),
        ("class A:", "The sum.", True),
        ("class A:", "What it holds.", False),
    ],
)
def test_a_docstring_against_the_rule_is_found(definition: str, docstring: str, is_right: bool) -> None:
    found = list(docstrings(ast.parse(f'{definition}\n    """{docstring}"""')))
    assert [fault(node, text) == "" for node, _, text in found] == [is_right]


def test_subjects_have_names() -> None:
    rows = []
    for path in all_files():
        if path.name.startswith("LICENSE"):  # a legal text in the words of its authors
            continue
        with suppress(UnicodeDecodeError):  # a picture
            lines = enumerate(read(path).splitlines(), 1)
            rows += [f"{path}:{number}: {line.strip()}" for number, line in lines if UNNAMED.search(line)]
    assert rows == [], "rewrite these sentences: the subject is a term of the glossary"


@pytest.mark.parametrize("word", ["w" + "ho", "W" + "hom", "some" + "body", "any" + "one", "no" + "body"])
def test_a_word_for_an_unnamed_person_is_found(word: str) -> None:
    assert UNNAMED.search(f"{word} waits")
    assert not UNNAMED.search(f"{word}x waits")


def test_names_are_nouns_and_verbs() -> None:
    names = re.compile(r"\b(?:def|class) (\w+)")
    rows = [
        f"{path}: {name}"
        for path in files(".py")
        for name in names.findall(read(path))
        if UNNAMED.search(name.replace("_", " "))
    ]
    assert rows == [], "a name is a noun or a verb"


def test_the_head_of_a_command_begins_with_a_verb() -> None:
    first_lines = {
        path: read(path).split("\n")[0] for path in files(".lua") if path.parts[:3] == LUA and path.parent.name != "lib"
    }
    assert len(first_lines) > 50
    assert {path: line for path, line in first_lines.items() if not re.match(rf"-- ({'|'.join(VERBS)})\b", line)} == {}


def test_the_comment_of_a_lua_function_begins_with_a_verb() -> None:
    comments = [
        f"{path}: {found[1]}"
        for path in files(".lua")
        if path.parts[:3] == LUA
        for found in re.finditer(r"^-- (.*)\n(?:--.*\n)*(?:local )?function ", read(path), re.M)
    ]
    assert len(comments) > 300
    assert [row for row in comments if not re.match(rf"\S+: (True if|({'|'.join(VERBS)}))\b", row)] == []
