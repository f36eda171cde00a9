"""The sizes of the documentation: a README of one page, and pages that can be read in one sitting."""

from __future__ import annotations

import pytest

from tests.support.doc_pages import PAGES, Page
from tests.support.paths import ROOT

README_LINES, README_BYTES, TOUR_LINES, PAGE_LINES = 180, 12 * 1024, 40, 400
DOCS = [page for page in PAGES if ROOT / "docs" in page.path.parents]


def test_the_readme_is_one_page() -> None:
    readme = (ROOT / "README.md").read_bytes()
    assert len(readme.splitlines()) <= README_LINES
    assert len(readme) <= README_BYTES


def test_the_tour_of_the_readme_is_short() -> None:
    tour = (ROOT / "README.md").read_text().partition("\n## Five minutes")[2].partition("\n## ")[0]
    lines = [line for line in tour.splitlines() if line and not line.startswith("```")]
    assert 0 < len(lines) <= TOUR_LINES


@pytest.mark.parametrize("page", DOCS, ids=[page.name for page in DOCS])
def test_a_page_has_a_bounded_length(page: Page) -> None:
    assert len(page.text.splitlines()) <= PAGE_LINES, "divide the page"
