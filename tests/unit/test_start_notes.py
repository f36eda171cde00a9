"""The notes of a service about its start: it runs as root, or a variable of Kubernetes is no setting."""

from __future__ import annotations

import os

import pytest

from app.cli.context import start_notes
from app.settings import Settings


@pytest.mark.parametrize(("user", "count"), [(0, 1), (1000, 0)])
def test_a_start_as_root_is_noted_once(monkeypatch: pytest.MonkeyPatch, user: int, count: int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert sum("runs as root" in note for note in start_notes(Settings(), {})) == count


def test_a_port_that_is_a_service_link_is_noted_with_the_port_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (note,) = start_notes(Settings(port=8102), {"POOLKEEPER_PORT": "tcp://10.0.0.1:8080"})
    assert note.startswith("POOLKEEPER_PORT=tcp://10.0.0.1:8080 is the address of a service")
    assert "port 8102 is used" in note
    assert start_notes(Settings(), {"POOLKEEPER_PORT": "8080"}) == []
