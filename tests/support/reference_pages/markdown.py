"""Tables, blocks and notes of generated Markdown pages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

WIDTH = 120
"""The longest line of an example, in characters."""


def page(title: str, purpose: str, source: str, *parts: str) -> str:
    """Return a page: its title, its first sentences, the note that it is generated, and its parts."""
    note = f"<!-- Generated from {source} by `make generated`: edit the tables there. -->"
    return "\n\n".join([f"# {title}", note, purpose, *(part for part in parts if part)]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; empty if it has no rows."""
    lines = [_row(cells) for cells in rows]
    return "\n".join([_row(head), "|" + "---|" * len(head), *lines]) if lines else ""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def code(text: str) -> str:
    """Return the text as a span of code; empty if there is none."""
    return f"`{text}`" if text else ""


def codes(words: Iterable[Any]) -> str:
    """Return words as spans of code, with commas."""
    return ", ".join(f"`{word}`" for word in words)


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, in one line."""
    return f"{' '.join(text.split()).split('. ')[0].rstrip('.')}."


def block(language: str, text: str) -> str:
    """Return a block of code."""
    return f"```{language}\n{text.rstrip()}\n```"


def json_block(value: Any) -> str:
    """Return a block of JSON."""
    return block("json", json_text(value))


def json_text(value: Any) -> str:
    """Return a value as JSON. A part that fits into a line stands in one line."""
    return _json(value, "")


def _json(value: Any, indent: str) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(flat) <= WIDTH or not isinstance(value, (dict, list)) or not value:
        return flat
    inner = indent + "  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {_json(part, inner)}" for name, part in value.items()]
        return "{\n" + _filled(parts, inner) + f"\n{indent}}}"
    return "[\n" + _filled([_json(part, inner) for part in value], inner) + f"\n{indent}]"


def _filled(parts: Sequence[str], indent: str) -> str:
    """Return the parts with commas, as many in a line as fit."""
    lines = [""]
    for number, part in enumerate(parts):
        text = part + ("," if number + 1 < len(parts) else "")
        if lines[-1] and len(indent) + len(lines[-1]) + 1 + len(text) <= WIDTH and "\n" not in text + lines[-1]:
            lines[-1] += f" {text}"
        elif lines[-1]:
            lines.append(text)
        else:
            lines[-1] = text
    return "\n".join(indent + line for line in lines)
