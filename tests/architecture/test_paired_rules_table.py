"""The table of rules that exist twice, in docs/internals/architecture.md, names files and tests that exist."""

from __future__ import annotations

import ast
import re

from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "internals" / "architecture.md"
COLUMNS = ["rule", "Lua", "Python", "kept equal by"]


def rows() -> list[list[str]]:
    """Return the cells of the table, without its head."""
    section = PAGE.read_text("utf-8").partition("## Rules that exist twice")[2].partition("\n## ")[0]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")]
    assert table[0] == COLUMNS
    return table[2:]


def code(cell: str) -> str:
    """Return the only text in backticks of a cell."""
    (text,) = re.findall(r"`([^`]+)`", cell)
    return str(text)


def test_every_file_of_a_pair_exists() -> None:
    paths = [path for _, lua, python, _ in rows() for path in (f"app/store/lua/{code(lua)}", f"app/{code(python)}")]
    assert [path for path in paths if not (ROOT / path).is_file()] == [], (
        "the table of docs/internals/architecture.md names files that do not exist"
    )
    assert len(paths) >= 16


def test_every_test_that_keeps_a_pair_equal_exists() -> None:
    ids = [code(test) for *_, test in rows()]
    missing = []
    for test_id in ids:
        path, _, name = test_id.partition("::")
        functions = [
            node.name for node in ast.parse((ROOT / path).read_text("utf-8")).body if isinstance(node, ast.FunctionDef)
        ]
        missing += [] if name in functions else [test_id]
    assert missing == [], "the table of docs/internals/architecture.md names tests that do not exist"
    assert len(set(ids)) == len(ids)


def test_every_test_of_paired_rules_is_in_the_table() -> None:
    module = "tests/properties/test_paired_rules.py"
    tree = ast.parse((ROOT / module).read_text("utf-8"))
    tests = {
        f"{module}::{node.name}" for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    assert tests == {code(test) for *_, test in rows() if code(test).startswith(module)}, (
        "add a row to the table of docs/internals/architecture.md"
    )


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text("utf-8").splitlines()) <= 150
