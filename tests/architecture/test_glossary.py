"""The glossary: its names exist in the code, and each term stands there once."""

from __future__ import annotations

import re
from collections import Counter

from tests.support.paths import ROOT

GLOSSARY = (ROOT / "docs" / "reference" / "glossary.md").read_text("utf-8")
SOURCES = ("app", "workers", "client/poolkeeper")


def words_of_the_code() -> set[str]:
    """Return all words of the Python and Lua files of the product."""
    paths = [path for folder in SOURCES for suffix in ("py", "lua") for path in (ROOT / folder).rglob(f"*.{suffix}")]
    return {word for path in paths for word in re.findall(r"\w+", path.read_text("utf-8"))}


def test_every_name_exists_in_the_code() -> None:
    names = {word for span in re.findall(r"`([^`]+)`", GLOSSARY) for word in re.findall(r"\w+", span)}
    assert len(names) > 30
    assert names - words_of_the_code() == set(), "the glossary names what the code does not have"


def test_each_term_stands_once() -> None:
    terms = [term for row in re.findall(r"^\| ([^|]+) \|", GLOSSARY, re.M) for term in row.split(", ") if term != "term"]
    assert len(terms) > 90
    assert [term for term, count in Counter(terms).items() if count > 1] == [], "a term stands in the glossary once"
