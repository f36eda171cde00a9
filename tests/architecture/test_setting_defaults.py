"""The default of a process setting stands in one place, and `config/default.toml` is checked against it."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from app.domain.ledger_limits import LedgerLimits
from app.settings import DEFAULT_FILE, Settings
from tests.support.paths import ROOT

NAMES = {each.name for each in fields(Settings)}
SOURCES = {"app/settings.py": NAMES, "app/domain/ledger_limits.py": {each.name for each in fields(LedgerLimits)}}
"""The files that state defaults, with the settings that each states. `Settings` takes those of `LedgerLimits` from there."""


def defaults_in_python(source: str) -> Iterator[str]:
    """Yield each name with a literal default: a field or variable with an annotation, or a parameter."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=value)) if value is not None:
                yield name
            case ast.arguments(posonlyargs=only, args=args, defaults=defaults, kwonlyargs=named, kw_defaults=named_defaults):
                positional = [*only, *args]
                for argument, default in [
                    *zip(positional[len(positional) - len(defaults) :], defaults, strict=True),
                    *zip(named, named_defaults, strict=True),
                ]:
                    if isinstance(default, ast.Constant) and default.value is not None:
                        yield argument.arg


def literals(path: Path) -> set[str]:
    return set(defaults_in_python(path.read_text("utf-8"))) & NAMES


def test_no_default_is_written_anywhere_else() -> None:
    paths = [path for folder in ("app", "workers", "config") for path in (ROOT / folder).rglob("*.py")]
    elsewhere = {str(path.relative_to(ROOT)): literals(path) for path in paths}
    assert {path: names for path, names in elsewhere.items() if names - SOURCES.get(path, set())} == {}, (
        "the default of a setting stands in app/settings.py only"
    )


def test_no_setting_takes_a_number_that_another_file_has() -> None:
    limits, settings = LedgerLimits(), Settings()
    assert {name: getattr(settings, name) for name in SOURCES["app/domain/ledger_limits.py"]} == {
        name: getattr(limits, name) for name in SOURCES["app/domain/ledger_limits.py"]
    }
    assert literals(ROOT / "app" / "settings.py") == set(), "each is a call of setting()"


def test_the_file_of_defaults_has_every_setting_in_order_with_its_default() -> None:
    assert list(tomllib.loads(DEFAULT_FILE.read_text("utf-8"))) == [each.name for each in fields(Settings)], (
        "`make generated` writes the file"
    )
    assert Settings.read(DEFAULT_FILE, {}) == Settings()


@pytest.mark.parametrize(
    "source",
    [
        "class A:\n    chunk: int = 200",
        "chunk: int = 200",
        "def f(self, client, chunk=200): pass",
        "def f(chunk: int = 200, /): pass",
        "def f(*, chunk: int = 200): pass",
        "lambda chunk=200: None",
    ],
)
def test_a_literal_default_is_found(source: str) -> None:
    assert set(defaults_in_python(source)) == {"chunk"}


@pytest.mark.parametrize(
    "source", ["def f(chunk): pass", "def f(*, chunk: int | None = None): pass", "chunk: int = LIMITS.chunk"]
)
def test_what_is_no_literal_default_is_not_found(source: str) -> None:
    assert set(defaults_in_python(source)) == set()
