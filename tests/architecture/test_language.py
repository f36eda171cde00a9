"""The language rules that a program can see: docstrings, comments, heads of Lua files and pages of the documentation.

A subject is a noun of the glossary, so words for unnamed people occur nowhere. The docstring of a function begins with a verb
of `verbs.txt`, or with "True if". No docstring opens with an interrogative. There is no list of exceptions.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

VERBS = frozenset((Path(__file__).parent / "verbs.txt").read_text("utf-8").split())
UNNAMED = re.compile(r"\b(who|whom|whoever|somebody|someone|anybody|nobody)\b", re.I)
INTERROGATIVE = re.compile(r"(what|which|who|whom|whose|whoever|whatever|whether|how|where|when|why)\b", re.I)
PARTS = ("app", "workers", "client", "integrations", "tests", "bench", "examples", "config")
TEXTS = (
    ".py",
    ".lua",
    ".md",
    ".txt",
    ".toml",
    ".yaml",
    ".yml",
    ".json",
    ".html",
    ".js",
    ".css",
    ".conf",
    ".service",
    ".timer",
    ".ini",
)
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
IGNORED = frozenset({".venv", "__pycache__", "node_modules", "dist"})


def files(parts: tuple[str, ...], *suffixes: str) -> Iterator[Path]:
    """Yield the files of these folders that have one of the suffixes."""
    for part in parts:
        for path in sorted((ROOT / part).rglob("*")):
            if path.suffix in suffixes and path.is_file() and not IGNORED & set(path.relative_to(ROOT).parts):
                yield path


AREAS = sorted({"/".join(path.relative_to(ROOT).parts[:-1][:2]) for path in files(PARTS, ".py")})
"""The folders with modules, as deep as `app/planner`."""


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
        f"{path.relative_to(ROOT)}:{line}: {rule}: {text.strip()}"
        for path in files((area,), ".py")
        if "/".join(path.relative_to(ROOT).parts[:-1][:2]) == area
        for node, line, text in docstrings(ast.parse(path.read_text("utf-8")))
        if (rule := fault(node, text.strip()))
    ]
    assert rows == [], "rewrite these docstrings, or add a real verb to tests/architecture/verbs.txt"


@pytest.mark.parametrize("part", [*PARTS, "docs", "."])
def test_subjects_have_names(part: str) -> None:
    paths = [path for path in ROOT.iterdir() if path.suffix in TEXTS] if part == "." else list(files((part,), *TEXTS))
    rows = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in paths
        if path != Path(__file__)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if UNNAMED.search(line)
    ]
    assert rows == [], "rewrite these sentences: the subject is a term of the glossary"


def test_names_are_nouns_and_verbs() -> None:
    names = re.compile(r"\b(?:def|class) (\w+)")
    rows = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files(PARTS, ".py")
        for name in names.findall(path.read_text("utf-8"))
        if UNNAMED.search(name.replace("_", " "))
    ]
    assert rows == [], "a name is a noun or a verb"


def test_the_head_of_a_command_begins_with_a_verb() -> None:
    lua = ROOT / "app" / "store" / "lua"
    commands = [path for path in sorted(lua.rglob("*.lua")) if path.parent != lua / "lib"]
    first_lines = {str(path.relative_to(lua)): path.read_text("utf-8").split("\n")[0] for path in commands}
    assert len(first_lines) > 50
    assert {name: line for name, line in first_lines.items() if not re.match(rf"-- ({'|'.join(VERBS)})\b", line)} == {}


def test_the_comment_of_a_lua_function_begins_with_a_verb() -> None:
    comments = [
        f"{path.relative_to(ROOT)}: {found[1]}"
        for path in files(("app",), ".lua")
        for found in re.finditer(r"^-- (.*)\n(?:--.*\n)*(?:local )?function ", path.read_text("utf-8"), re.M)
    ]
    assert len(comments) > 300
    assert [row for row in comments if not re.match(rf"\S+: (True if|({'|'.join(VERBS)}))\b", row)] == []
