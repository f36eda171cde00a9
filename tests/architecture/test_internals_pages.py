"""CONTRIBUTING.md and the pages of docs/internals name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PAGES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "internals").glob("*.md"))]
PLACES = (ROOT, ROOT / "app", ROOT / "app" / "store", ROOT / "app" / "store" / "lua", ROOT / "app" / "store" / "lua" / "lib")
NAME = re.compile(r"(?<![\w./-])((?:[\w-]+/)*[\w-]+\.(?:py|lua|toml|yaml|yml|txt|json|conf))\b(?!/)")


def named_files(page: Path) -> list[str]:
    """Return the names of code files in spans of code and in diagrams, without the names of links."""
    text = re.sub(r"\]\([^)]*\)", "]", page.read_text("utf-8"))
    return sorted(set(NAME.findall(text)))


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    absent = [
        name
        for name in named_files(page)
        if not any((place / name).exists() for place in PLACES) and not any(ROOT.glob(f"app/*/{name}"))
    ]
    assert absent == [], "the page names files that do not exist"


def test_the_pages_name_files() -> None:
    assert sum(len(named_files(page)) for page in PAGES) > 80
