"""The default of a pool setting stands in `app/domain/pool_settings.py` and nowhere else, in Python or in Lua."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.pool_settings import SETTINGS
from tests.architecture.test_project import project_files
from tests.support.paths import ROOT

TABLE = Path("app/domain/pool_settings.py")
LUA_DEFAULT = re.compile(r"\b(\w+)\)? or (?:\d|true\b|false\b|['\"]\w)")
"""A value, and a literal that stands in for it."""


def _is_literal(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is not None


def _name(node: ast.expr) -> str:
    """Return the name that an expression reads, be it a variable, an attribute, or a key of a mapping."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    key = node.slice if isinstance(node, ast.Subscript) else node.args[0] if isinstance(node, ast.Call) and node.args else None
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""


def python_defaults(source: str) -> Iterator[str]:
    """Yield the settings that a Python file gives a literal default."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign) and _is_literal(node.value):
            yield _name(node.target)
        elif isinstance(node, ast.Assign) and _is_literal(node.value):
            yield from map(_name, node.targets)
        elif isinstance(node, ast.Call) and len(node.args) == 2 and _is_literal(node.args[1]):
            yield _name(node)
        elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and _is_literal(node.values[-1]):
            yield _name(node.values[0])


def test_no_python_file_has_a_default_of_its_own() -> None:
    paths = [path for path in project_files(".py") if path.parts[0] in ("app", "workers") and path != TABLE]
    defaults = {(str(path), name) for path in paths for name in python_defaults((ROOT / path).read_text("utf-8"))}
    assert {(path, name) for path, name in defaults if name in SETTINGS} == set(), "use default_value(NAME)"


def test_no_lua_file_has_a_default_of_its_own() -> None:
    texts = {str(path): (ROOT / path).read_text("utf-8") for path in project_files(".lua") if path.parts[0] == "app"}
    defaults = {(path, name) for path, text in texts.items() for name in LUA_DEFAULT.findall(text)}
    assert {(path, name) for path, name in defaults if name in SETTINGS} == set(), "use const.NAME"


@pytest.mark.parametrize(
    "source",
    ["grace_s: int = 30", "grace_s = 30", "fields.get('grace_s', 30)", "settings.grace_s or 30", "x = fields['grace_s'] or 30"],
)
def test_a_default_in_python_is_found(source: str) -> None:
    assert "grace_s" in set(python_defaults(source))


@pytest.mark.parametrize("source", ["pool.fields.grace_s or 30", "tonumber(pool.fields.grace_s) or 30", "grace_s or '30'"])
def test_a_default_in_lua_is_found(source: str) -> None:
    assert LUA_DEFAULT.findall(source) == ["grace_s"]
