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

STATED_IN = (Path("app/domain/pool_settings.py"), Path("client/poolkeeper/cli/setting_table.py"))
"""The table, and the client's generated copy."""
LUA_DEFAULT = re.compile(r"\b(\w+)(?:(?:\)? or|,) *(?=\d|true\b|false\b|['\"]\w)|['\"], *(?=\d|true\b|false\b))")
"""A value, or its name as an argument; and a literal that stands in for it."""


def _is_literal(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is not None


def _name(node: ast.expr | None) -> str:
    """Return the name that an expression reads, be it a variable, an attribute, or a key of a mapping."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case ast.Call(args=[ast.Constant(value=str(name)), *_]) | ast.Call(args=[_, ast.Constant(value=str(name)), *_]):
            return name
        case ast.Constant(value=str(name)):
            return name
    return ""


def python_defaults(source: str) -> Iterator[str]:
    """Yield the settings that a Python file gives a literal default."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign) and _is_literal(node.value):
            yield _name(node.target)
        elif isinstance(node, ast.Assign) and _is_literal(node.value):
            yield from map(_name, node.targets)
        elif isinstance(node, ast.Call) and len(node.args) == 2 and all(map(_is_literal, node.args)):
            yield _name(node.args[0])
        elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and _is_literal(node.values[-1]):
            yield _name(node.values[0])
        elif isinstance(node, ast.Dict):  # of numbers: a text may be a word about the setting
            rows = zip(node.keys, node.values, strict=True)
            yield from (_name(key) for key, value in rows if _is_literal(value) and not _name(value))


def is_product(path: Path) -> bool:
    """True if the file is of the service or of the command line."""
    return path.parts[0] in ("app", "workers") or path.parts[:3] == ("client", "poolkeeper", "cli")


def test_no_python_file_has_a_default_of_its_own() -> None:
    paths = [path for path in project_files(".py") if is_product(path) and path not in STATED_IN]
    defaults = {(str(path), name) for path in paths for name in python_defaults((ROOT / path).read_text("utf-8"))}
    assert {(path, name) for path, name in defaults if name in SETTINGS} == set(), "use default_value(NAME)"


def test_no_lua_file_has_a_default_of_its_own() -> None:
    texts = {str(path): (ROOT / path).read_text("utf-8") for path in project_files(".lua") if path.parts[0] == "app"}
    defaults = {(path, name) for path, text in texts.items() for name in LUA_DEFAULT.findall(text)}
    assert {(path, name) for path, name in defaults if name in SETTINGS} == set(), "use const.NAME"


@pytest.mark.parametrize(
    "source",
    [
        "grace_s: int = 30",
        "grace_s = 30",
        "fields.get('grace_s', 30)",
        "settings.grace_s or 30",
        "x = fields['grace_s'] or 30",
        "int(fields.get('grace_s') or 30)",
        "self._setting(account, 'grace_s') or 30",
        "{'grace_s': 30}",
    ],
)
def test_a_default_in_python_is_found(source: str) -> None:
    assert "grace_s" in set(python_defaults(source))


@pytest.mark.parametrize(
    "source",
    [
        "pool.fields.grace_s or 30",
        "tonumber(pool.fields.grace_s) or 30",
        "grace_s or '30'",
        "seconds(pool, 'grace_s', 30)",
        "seconds(pool.grace_s, '30')",
    ],
)
def test_a_default_in_lua_is_found(source: str) -> None:
    assert "grace_s" in LUA_DEFAULT.findall(source)
