"""What the client costs a program that imports it: the standard library, and of it no HTTP before the first call."""

from __future__ import annotations

import subprocess
import sys

IMPORTED = "import sys; before = set(sys.modules); import poolkeeper; print(*(set(sys.modules) - before))"


def imported() -> set[str]:
    """The modules that come with the client."""
    told = subprocess.run([sys.executable, "-I", "-c", IMPORTED], capture_output=True, text=True, check=True)
    return set(told.stdout.split())


def test_nothing_but_the_standard_library() -> None:
    foreign = {name.partition(".")[0] for name in imported()} - sys.stdlib_module_names
    assert foreign == {"poolkeeper"}


def test_nothing_heavy_and_nothing_of_the_command_line() -> None:
    heavy = {"asyncio", "email", "hashlib", "http.client", "logging", "random", "socket", "ssl", "subprocess", "uuid"}
    assert imported() & heavy == set()
    assert not any(f"{name}.".startswith("poolkeeper.cli.") for name in imported())
