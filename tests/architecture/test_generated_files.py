"""Generated files are as the tables in the code have them, and no default of a setting is written anywhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.pool_settings import SETTINGS
from tests.support.generated_files import GENERATED
from tests.support.paths import ROOT

TABLE = "app/domain/pool_settings.py"
CLIENT_COPY = "client/poolkeeper/cli/setting_table.py"
LUA_DEFAULT = re.compile(rf"\b({'|'.join(SETTINGS)})\b\s*(?:or|,)\s*(?:\d|'\w+')")


@pytest.mark.parametrize("path", GENERATED)
def test_a_generated_file_is_as_its_table_has_it(path: str) -> None:
    assert (ROOT / path).read_text("utf-8") == GENERATED[path](), "`make generated` writes it again"


def defaults_in_python(source: str) -> Iterator[str]:
    """Yield every setting that gets a literal default: `grace_s: int = 30`, `.get("grace_s", 30)`, `.get("grace_s") or 30`."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=value)) if value is not None:
                yield name
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), ast.Constant()]):
                yield name
            case ast.BoolOp(
                op=ast.Or(),
                values=[
                    ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_]),
                    ast.Constant(value=int()),
                ],
            ):
                yield name
            case ast.BoolOp(op=ast.Or(), values=[ast.Call(args=[_, ast.Constant(value=str(name))]), ast.Constant(value=int())]):
                yield name
            case ast.Dict(keys=keys, values=values):
                yield from (
                    key.value
                    for key, value in zip(keys, values, strict=True)
                    if isinstance(key, ast.Constant)
                    and isinstance(key.value, str)
                    and isinstance(value, ast.Constant)
                    and not isinstance(value.value, str)
                )


def python_files() -> list[Path]:
    folders = (ROOT / folder for folder in ("app", "workers", "client/poolkeeper/cli"))
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def test_a_default_of_a_setting_stands_in_the_table_and_nowhere_else() -> None:
    duplicates = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in python_files()
        if str(path.relative_to(ROOT)) not in (TABLE, CLIENT_COPY)
        for name in defaults_in_python(path.read_text("utf-8"))
        if name in SETTINGS
    }
    assert duplicates == set(), f"the default of a setting stands in {TABLE} only"


def test_no_script_has_a_default_of_a_setting() -> None:
    scripts = (ROOT / "app" / "store" / "lua").rglob("*.lua")
    duplicates = {
        f"{path.relative_to(ROOT)}: {match[0]}" for path in scripts for match in LUA_DEFAULT.finditer(path.read_text("utf-8"))
    }
    assert duplicates == set(), f"the default of a setting stands in {TABLE} only: use const.NAME"


@pytest.mark.parametrize(
    "source",
    [
        "class A:\n    grace_s: int = 30",
        "texts.get('grace_s', 30)",
        "int(texts.get('grace_s') or 30)",
        "texts.get('grace_s') or 30",
        "self._setting(account, 'grace_s') or 30",
        "{'grace_s': 30}",
    ],
)
def test_a_default_that_is_written_elsewhere_is_found(source: str) -> None:
    assert set(defaults_in_python(source)) & SETTINGS.keys() == {"grace_s"}


@pytest.mark.parametrize("source", ["tonumber(pool.fields.grace_s or 30)", "seconds(pool, 'grace_s', 30)"])
def test_a_default_that_a_script_has_is_found(source: str) -> None:
    assert LUA_DEFAULT.search(source.replace("'grace_s'", "grace_s"))
