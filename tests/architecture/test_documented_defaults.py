"""The defaults that the pages state, as in `grace_s` (30 s), and the settings of their TOML blocks are those of the code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from app.celery_brokers import TaskBroker
from app.domain.pool_settings import SETTINGS
from app.domain.specs import RequestSpec
from app.domain.workspace_limits import WORKSPACE_LIMITS
from app.settings import Settings
from tests.support.doc_pages import PAGES, Page

UNITS = {"": 1, " s": 1, " ms": 1, " %": 1, " min": 60, " days": 86400, " MiB": 2**20}
STATED = re.compile(r"\b(\w+)`? \((?:`(\w+)`: )?([\d.,]*\d)( s| ms| %| min| days| MiB)?(?=[;,)])")
"""The name of a setting, the discipline if the default differs, the number and its unit."""

PRESENT = [page for page in PAGES if page.name != "CHANGELOG.md"]
"""The pages that describe this version."""


def defaults(name: str, discipline: str | None) -> set[object]:
    """Return the defaults with this name: of a setting of a process, broker, pool or workspace, or of a request."""
    if name in SETTINGS:
        setting = SETTINGS[name]
        return {setting.by_discipline[discipline]} if discipline else {setting.default, *setting.by_discipline.values()}
    tables: list[Mapping[str, Any]] = [
        {each.name: each.default for kind in (Settings, TaskBroker) for each in fields(kind)},
        {limit.name: limit.default for limit in WORKSPACE_LIMITS.values()},
        {each: field.default for each, field in RequestSpec.model_fields.items()},
    ]
    return {table[name] for table in tables if name in table} - {MISSING}


def stated(page: Page) -> Iterator[tuple[str, str | None, float]]:
    """Yield each default that a page states: name, discipline, value in the unit of the setting."""
    for name, discipline, number, unit in STATED.findall(page.text):
        yield name, discipline or None, float(number.replace(",", "")) * UNITS[unit]


@pytest.mark.parametrize("page", PRESENT, ids=[page.name for page in PRESENT])
def test_a_page_states_the_defaults_of_the_code(page: Page) -> None:
    wrong = [
        (name, value)
        for name, discipline, value in stated(page)
        if (known := defaults(name, discipline)) and value not in known
    ]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_a_settings_file_of_a_page_can_be_read(page: Page, tmp_path: Path) -> None:
    for block in page.blocks():
        if block.language == "toml" and "file" not in block.markers:
            (tmp_path / "poolkeeper.toml").write_text(block.text, "utf-8")
            Settings.read(tmp_path / "poolkeeper.toml", environ={})


def test_the_pages_state_defaults() -> None:
    assert sum(bool(defaults(name, discipline)) for page in PRESENT for name, discipline, _ in stated(page)) > 25
