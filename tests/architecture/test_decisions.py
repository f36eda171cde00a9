"""The pages of decisions have one form, and the index lists each once with its title."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

FOLDER = ROOT / "docs" / "decisions"
INDEX = FOLDER / "README.md"
PAGES = sorted(set(FOLDER.glob("*.md")) - {INDEX})


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_page_has_a_title_a_context_a_decision_and_a_consequence(page: Path) -> None:
    text = page.read_text("utf-8")
    assert re.findall(r"^(# |\*\*\w+\.\*\*)", text, re.M) == ["# ", "**Context.**", "**Decision.**", "**Consequence.**"]
    assert text.count("\n") <= 15, "a page of a decision has at most 15 lines"


def test_the_index_lists_every_page_once_with_its_title() -> None:
    listed = re.findall(r"^- \[(.+)\]\((.+)\)$", INDEX.read_text("utf-8"), re.M)
    titles = [(page.read_text("utf-8").partition("\n")[0].removeprefix("# "), page.name) for page in PAGES]
    assert sorted(listed) == sorted(titles), "docs/decisions/README.md lists each page under its title"
