"""The cost of importing the client: only the standard library, and of it no HTTP module before the first call."""

from __future__ import annotations

import subprocess
import sys

import poolkeeper
import pytest

EVERYTHING = "from poolkeeper import *"


def imported(program: str = EVERYTHING) -> set[str]:
    """Return the modules that an import of the client loads."""
    counted = f"import sys; before = set(sys.modules)\n{program}\nprint(*(set(sys.modules) - before))"
    lines = subprocess.run([sys.executable, "-I", "-c", counted], capture_output=True, text=True, check=True)
    return set(lines.stdout.split())


def test_nothing_but_the_standard_library() -> None:
    foreign = {name.partition(".")[0] for name in imported()} - sys.stdlib_module_names
    assert foreign == {"poolkeeper"}


def test_nothing_heavy_and_nothing_of_the_command_line() -> None:
    heavy = {"asyncio", "email", "hashlib", "http.client", "logging", "random", "socket", "ssl", "subprocess", "uuid"}
    assert imported() & heavy == set()
    assert not any(f"{name}.".startswith("poolkeeper.cli.") for name in imported())


def test_nothing_of_it_is_imported_before_it_is_used() -> None:
    assert {name for name in imported("import poolkeeper") if name.startswith("poolkeeper.")} == set()
    assert "poolkeeper.client" not in imported("from poolkeeper import errors")
    assert "poolkeeper.client" in imported("import poolkeeper; poolkeeper.Client")


def test_what_is_named_is_there_and_nothing_else() -> None:
    assert {name: getattr(poolkeeper, name).__name__ for name in poolkeeper.__all__} == {
        "Allocation": "Allocation",
        "Client": "Client",
        "errors": "poolkeeper.errors",
        "models": "poolkeeper.models",
        "request_spec": "request_spec",
    }
    assert set(poolkeeper.__all__) <= set(dir(poolkeeper))
    with pytest.raises(AttributeError, match="has no attribute 'Cleint'"):
        poolkeeper.Cleint  # type: ignore[attr-defined]  # noqa: B018
