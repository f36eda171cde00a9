"""Lists of requests on terminals of several widths: which columns are left out, and what stands below a row."""

from __future__ import annotations

import re

import pytest
from poolkeeper.cli import output
from poolkeeper.cli.output import Column
from poolkeeper.cli.table_layout import Layout, fit

from tests.support.cli_program import Program

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
COLUMNS = (
    Column("ID", str),
    Column("OWNER", str, rank=2),
    Column("POOL", str, rank=1),
    Column("NAME", str, long=True),
    Column("WHY", str, long=True, below=True),
)
ROWS = [["abcdef", "ana@gpu-01", "gpus", "a name of 20 letters", "a reason that is longer than thirty characters"]]


def without(**cells: str) -> list[list[str]]:
    titles = [column.title for column in COLUMNS]
    return [[cells.get(title, cell) for title, cell in zip(titles, row, strict=True)] for row in ROWS]


@pytest.mark.parametrize(
    ("width", "layout"),
    [
        (68, Layout((0, 1, 2, 3, 4), None, 68)),
        (67, Layout((0, 1, 2, 3), 4, 36)),
        (36, Layout((0, 1, 2, 3), 4, 36)),
        (35, Layout((0, 1, 3), 4, 30)),
        (29, Layout((0, 3), 4, 18)),
        (5, Layout((0, 3), 4, 18)),
    ],
)
def test_what_yields_to_the_width(width: int, layout: Layout) -> None:
    assert fit(COLUMNS, ROWS, width) == layout


def test_columns_without_values_yield_first() -> None:
    assert fit(COLUMNS, without(OWNER="-"), 60) == Layout((0, 2, 3, 4), None, 56)
    assert fit(COLUMNS, without(WHY="-"), 38) == Layout((0, 1, 2, 3), None, 36)


@pytest.fixture
def requests(poolkeeper: Program) -> dict[str, str]:
    """Return the ids of an allocation and a rejected request, with names and an owner."""
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=4")
    poolkeeper("policy", "attach", "gpus", "research")
    origin = ("--label", "user=ana", "--label", "host=gpu-01")
    ask = ("request", "submit", "--component", "research", *origin, "-o", "name")
    return {
        "allocated": poolkeeper(*ask, "--name", "resnet50", "--gpu", "4").line,
        "rejected": poolkeeper(*ask, "--name", "a long name for a large model", "--gpu", "9", ends=6).line,
    }


def test_policies_fit_a_terminal(poolkeeper: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=8,matlab=2")
    poolkeeper("group", "create", "gpus", "interns", "--limit", "gpu=4")
    poolkeeper("policy", "attach", "gpus", "research", "--reserved", "gpu=2,matlab=1", "--limit", "gpu=6")
    poolkeeper("policy", "attach", "gpus", "intern/*", "--limit", "gpu=1", "--group", "interns")
    poolkeeper("request", "submit", "--component", "intern/ana", "--gpu", "1")
    monkeypatch.setattr(output, "is_terminal", lambda _: True)
    lines = COLOUR.sub("", poolkeeper("policy", "list", "gpus", COLUMNS="80").out).splitlines()
    assert max(map(len, lines)) <= 80
    titles = ["COMPONENT", "PRIORITY", "RESERVED", "LIMIT", "USED", "QUEUED", "GROUP", "POLICIES"]
    assert lines[0].split() == titles, "without what is borrowed, and the templates of policies"


@pytest.mark.parametrize("width", [80, 100, 200])
def test_a_list_of_requests_fits_a_terminal(
    poolkeeper: Program, requests: dict[str, str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda _: True)
    drawn = COLOUR.sub("", poolkeeper("request", "list", "--all", COLUMNS=str(width)).out)
    lines = [line.rstrip() for line in drawn.splitlines()]
    assert max(map(len, lines)) <= width
    assert all(lines), "no blank line"
    row_of = {status: next(line for line in lines if line.startswith(id_[-6:])) for status, id_ in requests.items()}
    rejected, allocated = row_of["rejected"], row_of["allocated"]
    assert re.search(r"resnet50 .*research .*gpu=4 .*allocated .*fence 1", allocated)
    assert re.search(r"research .*gpu=9 .*rejected", rejected)
    assert ("  gpus: asks 9 of gpu; the pool has 4 in all" in lines) == (width < 200), "below its row"
    assert "gpus: asks 9 of gpu; the pool has 4 in all" in " ".join(lines)


def test_a_long_reason_below_its_row_keeps_its_indentation(poolkeeper: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    for pool, key in (("gpus", "gpu"), ("licences", "matlab")):
        poolkeeper("pool", "create", pool, "--capacity", f"{key}=4")
        poolkeeper("policy", "attach", pool, "research")
    poolkeeper("request", "submit", "--component", "research", "--gpu", "1", "--matlab", "1", ends=6)
    monkeypatch.setattr(output, "is_terminal", lambda _: True)
    lines = COLOUR.sub("", poolkeeper("request", "list", "--all", COLUMNS="80").out).splitlines()
    assert lines[2].startswith("  no single pool has gpu and matlab: ")
    assert len(lines) > 3
    assert all(line.startswith("  ") and line[2] != " " for line in lines[2:])
