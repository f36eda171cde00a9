"""New outputs for the transcripts of pages, after a change of texts: `WRITE_TRANSCRIPTS=1 .venv/bin/pytest tests/live/docs`."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path

IsSame = Callable[[str, str], bool]
"""True if an output, the second text, is as a page shows it."""


def write_output(page: Path, line: int, command: str, expected: str, output: str, is_same: IsSame) -> bool:
    """Write the output of a command into a page, in place of the one that it shows at or after a line.

    False if the page is left as it is: the place is not found, or the shown output has a line that is only `…`.
    """
    text = page.read_text("utf-8")
    start = sum(len(each) for each in text.splitlines(keepends=True)[: line - 1])
    prompt = "$ " + "> ".join(command.splitlines(keepends=True))
    place = text.find(prompt + expected, start)
    if place < 0 or not command or re.search(r"^\s*…$", expected, re.M):
        return False
    begin, end = place + len(prompt), place + len(prompt + expected)
    page.write_text(text[:begin] + merge(expected, _as_shown(output), is_same) + text[end:], "utf-8")
    return True


def merge(expected: str, output: str, is_same: IsSame) -> str:
    """Return the output with the lines that a page shows already, so that ids and times stay."""
    shown, lines = expected.splitlines(keepends=True), output.splitlines(keepends=True)
    if len(shown) != len(lines):
        return output
    return "".join(old if is_same(old, new) else new for old, new in zip(shown, lines, strict=True))


def _as_shown(output: str) -> str:
    host = re.escape(socket.gethostname().partition(".")[0])
    text = re.sub(rf"[\w.-]+@{host}\b", "ana@gpu-01", re.sub(r" +$", "", output, flags=re.M))
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8080", text)
