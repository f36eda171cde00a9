"""`client/README.md`: its example runs with the output it shows, and its tables name all methods and errors."""

from __future__ import annotations

import re

import pytest
from poolkeeper import Client, errors

from tests.support.client_api import Api
from tests.support.paths import ROOT

TEXT = (ROOT / "client" / "README.md").read_text("utf-8")


def test_the_example_prints_what_its_comments_say_as_often_as_it_is_run(
    api: Api, client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [pool.name for pool in client.pools()] == ["gpus"], "as the sample pools have one, too"
    [block] = re.findall(r"<!-- tested by: tests/unit/client/test_readme.py -->\n```python\n(.*?)```", TEXT, re.DOTALL)
    monkeypatch.setenv("POOLKEEPER_URL", api.url)
    monkeypatch.setenv("POOLKEEPER_WORKSPACE", client.workspace)
    expected = re.findall(r"print\(.*\)  # (.*)", block)
    assert len(expected) == 2
    for _ in range(2):
        exec(compile(block, "README.md", "exec"), {})
        assert capsys.readouterr().out.splitlines() == expected


def test_what_the_tables_name_exists() -> None:
    methods = re.findall(r"`(\w+)(?:\([^`]*\))?`", "".join(line for line in TEXT.splitlines() if line.count(" · ")))
    assert len(methods) > 25
    assert [name for name in methods if not callable(getattr(Client, name, None))] == []
    kinds = re.findall(r"`([A-Z]\w+)`", TEXT[TEXT.index("| `ApiError`") :])
    assert len(kinds) == 13
    assert [name for name in kinds if not hasattr(errors, name)] == []


def test_every_method_is_in_the_tables() -> None:
    public = {name for name, value in vars(Client).items() if callable(value) and not name.startswith("_")} - {"submit_spec"}
    assert [name for name in sorted(public) if f"`{name}`" not in TEXT] == []
