"""The pages of the documentation and their blocks of code, as CONTRIBUTING.md describes how a page is written."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.paths import ROOT

STAGES = frozenset({"service", "sample pools", "redis", "nothing"})
_FENCE = re.compile(r"^( *)(`{3,})(\S*)[^\n]*\n(.*?)^\1\2 *$", re.M | re.S)
_MARKER = re.compile(r"<!-- (file|tested by): (.+?) -->\s*\Z")


@dataclass(frozen=True)
class Command:
    """A command of a transcript, with the output that the page shows."""

    text: str
    expected: str


@dataclass(frozen=True)
class Block:
    """A fenced block of code with the markers directly above it."""

    line: int
    language: str
    text: str
    markers: dict[str, str] = field(default_factory=dict)

    def commands(self) -> list[Command]:
        """Return the commands of a transcript; a line that begins with `> ` continues the command before it."""
        commands: list[list[str]] = []
        for line in self.text.splitlines(keepends=True):
            if line.startswith("$ "):
                commands.append([line[2:], ""])
            elif commands and not commands[-1][1] and line.startswith(("> ", ">\n")):
                commands[-1][0] += line[2:] or "\n"
            elif commands:
                commands[-1][1] += line
            else:
                raise ValueError(f"the block of line {self.line} begins with output")
        return [Command(text, expected) for text, expected in commands]

    def prints(self) -> str:
        """Return the output that the comments of a Python program promise: `print(…)  # output`."""
        return "".join(f"{text.strip()}\n" for text in re.findall(r"^ *print\(.*\)  # (.*)$", self.text, re.M))


def anchor_of(heading: str) -> str:
    """Return the anchor of a heading, as code hosts derive it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@dataclass(frozen=True)
class Page:
    """A Markdown page of the repository."""

    path: Path

    @property
    def name(self) -> str:
        """Return the path from the root of the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def text(self) -> str:
        """Return the whole text."""
        return self.path.read_text("utf-8")

    @property
    def prose(self) -> str:
        """Return the text without blocks and spans of code."""
        return re.sub(r"`[^`\n]+`", "``", _FENCE.sub("", self.text))

    def spans(self) -> list[str]:
        """Return the spans of code in the text, without those of blocks."""
        return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", _FENCE.sub("", self.text))

    @property
    def stage(self) -> str | None:
        """Return the surroundings that the page's commands run in, or None if it has no such commands."""
        found = re.findall(r"^<!-- runs with: (.+?) -->$", self.text, re.M)
        if len(found) > 1 or not STAGES.issuperset(found):
            raise ValueError(f"{self.name} runs with one of {sorted(STAGES)}, not with {found}")
        return found[0] if found else None

    def blocks(self) -> list[Block]:
        """Return the blocks of code in the page's order."""
        text, blocks = self.text, []
        for match in _FENCE.finditer(text):
            before, markers = text[: match.start()], {}
            while marker := _MARKER.search(before):
                markers[marker[1]] = marker[2]
                before = before[: marker.start()]
            line = text.count("\n", 0, match.start()) + 1
            content = re.sub(rf"^{match[1]}", "", match[4], flags=re.M) if match[1] else match[4]
            blocks.append(Block(line, match[3], content, markers))
        return blocks

    def anchors(self) -> set[str]:
        """Return the anchors of the page's headings; one that stands twice has a number."""
        anchors: set[str] = set()
        for heading in re.findall(r"^#{1,6} +(.+?) *$", _FENCE.sub("", self.text), re.M):
            slug = anchor_of(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading))
            number = 0
            while (anchor := f"{slug}-{number}" if number else slug) in anchors:
                number += 1
            anchors.add(anchor)
        return anchors | set(re.findall(r'<a (?:id|name)="([^"]+)"', self.text))

    def links(self) -> list[str]:
        """Return the targets of all links and pictures."""
        return re.findall(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)", self.prose) + re.findall(
            r'(?:src|href)="([^"]+)"', self.prose
        )


FOLDERS = ("*.md", "docs/**/*.md", "client/*.md", "examples/**/*.md", "integrations/*/*.md")
PAGES = [Page(path) for path in sorted(path for folder in FOLDERS for path in ROOT.glob(folder))]
