"""The file `docs/llms.txt` (llmstxt.org): every page of the documentation with its title and first sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

DECISION = "**Decision.** "
DOCS = ROOT / "docs"
SUMMARY = (
    "Poolkeeper shares scarce capacity (GPUs, CPUs, licence seats, slots) between the teams of an ML platform. It is a service "
    "with an HTTP API, a command line and a Python client, on Redis."
)
SECTIONS = (
    ("Start", "."),
    ("Guides", "guides"),
    ("Concepts", "concepts"),
    ("Operations", "operations"),
    ("Reference", "reference"),
    ("HTTP reference", "reference/http"),
    ("Command line reference", "reference/cli"),
    ("Internals", "internals"),
    ("Optional", "decisions"),
)
"""Title and folder of each section. A reader with little room may leave out the section `Optional`."""


def llms_file() -> str:
    """Return the file."""
    parts = ["# Poolkeeper", f"> {SUMMARY}"]
    for title, folder in SECTIONS:
        lines = [_line(page) for page in sorted((DOCS / folder).glob("*.md"), key=_order)]
        parts += [f"## {title}", "\n".join(lines)] if lines else []
    return "\n\n".join(parts) + "\n"


def _order(page: Path) -> tuple[bool, str]:
    """Return the key of the order: the index of a folder, then the others by name."""
    return page.name != "README.md", page.name


def _line(page: Path) -> str:
    title, *paragraphs = _paragraphs(page.read_text("utf-8"))
    prose = [paragraph for paragraph in paragraphs if re.match(r"[\w`\[]", paragraph)]
    decisions = [paragraph.removeprefix(DECISION) for paragraph in paragraphs if paragraph.startswith(DECISION)]
    sentences = [_first_sentence(paragraph) for paragraph in (*decisions, *prose)]
    return ": ".join([f"- [{title.removeprefix('# ')}]({page.relative_to(DOCS).as_posix()})", *sentences[:1]])


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs, each in one line, without comments."""
    for paragraph in re.sub(r"<!--.*?-->", "", text, flags=re.S).split("\n\n"):
        if words := paragraph.split():
            yield " ".join(words)


def _first_sentence(paragraph: str) -> str:
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", paragraph).replace("`", "").replace("**", "")
    return re.split(r"(?<=[.!?]) (?=\S)", plain)[0]
