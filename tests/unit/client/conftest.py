"""Tests of the client that need no server."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_config_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Read no configuration file of the account that runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nothing"))
