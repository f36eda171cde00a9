"""The reference page of the process settings, and the file of defaults."""

from __future__ import annotations

import re
import textwrap
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, TypeAlias

from app.domain.field_types import TEN_YEARS_S
from app.settings import Settings
from tests.support.reference_pages.markdown import code, page, table

Section: TypeAlias = tuple[str, list[Field[Any]]]


def settings_page() -> str:
    """Return the page: the settings by section."""
    return page(
        "Process settings",
        "Settings of `poolkeeperd`, the service. The settings of a pool are on [another page](pool-settings.md), the variables "
        "of clients on that of the [command line](cli.md#environment-variables).",
        "app/settings.py",
        "Each setting is a key of a TOML file and an environment variable. The variable overrides the file. The file is "
        "that of `--config`, else that of `POOLKEEPER_CONFIG`; without a file the defaults count. "
        "[config/default.toml](../../config/default.toml) has all settings with their defaults, to copy. If a key, or a "
        "variable that begins with `POOLKEEPER_`, is unknown, the service ends with exit code 2.",
        *(
            f"## {title}\n\n" + table(["key and variable", "default", "values", "meaning"], map(_row, rows))
            for title, rows in _sections()
        ),
    )


def defaults_file() -> str:
    """Return `config/default.toml`: every setting with its default and text."""
    lines = [
        "# Generated from app/settings.py by `make generated`: every setting of Poolkeeper, with its default.",
        "# Copy what you change into a file of your own, and name the file in POOLKEEPER_CONFIG. A variable overrides any",
        "# file: POOLKEEPER_DATA_DIR=/srv/poolkeeper sets data_dir.",
    ]
    for title, rows in _sections():
        lines += ["", f"## {title}"]
        for row in rows:
            text = f"{row.metadata['text']} Values: {_values(row)}.".replace("`", "")
            lines += ["", *(f"# {line}" for line in textwrap.wrap(text, 120, break_long_words=False))]
            lines += [f"{row.name} = {_toml(row.default)}"]
    return "\n".join(lines) + "\n"


def _sections() -> list[Section]:
    sections: list[Section] = []
    for row in fields(Settings):
        if title := row.metadata["section"]:
            sections.append((title, []))
        sections[-1][1].append(row)
    return sections


def _row(row: Field[Any]) -> list[str]:
    default = code(_toml(row.default).strip('"')) or "empty"
    return [f"`{row.name}`<br>`POOLKEEPER_{row.name.upper()}`", default, _values(row), row.metadata["text"]]


def _values(row: Field[Any]) -> str:
    """Return the values in words, without a bound of ten years that nothing reaches."""
    expected = row.metadata["kind"].expected
    expected = re.sub(rf", from (\S+) to {TEN_YEARS_S}$", r", at least \1", expected)
    return re.sub(r"^(a |an |the |one of )", "", expected)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:.15g}"
    return f'"./{value}"' if isinstance(value, Path) else f'"{value or ""}"'
