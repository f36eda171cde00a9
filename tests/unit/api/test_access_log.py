"""The entries of the access log: calls that failed, calls that took long, and a sample of the others."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from app.api.access_log import AccessLog
from app.api.app import HttpOptions
from app.logging_config import JsonFormatter
from app.settings import Settings
from tests.support.doc_pages import Page
from tests.support.fake_redis import new_fake
from tests.support.in_process_api import Site, an_ask
from tests.support.paths import ROOT


@pytest.fixture(autouse=True)
def information(caplog: pytest.LogCaptureFixture) -> None:
    """Capture entries of the level info."""
    caplog.set_level(logging.INFO, "poolkeeper.access")


def site_with(access_log: AccessLog) -> Site:
    return Site(new_fake(), choices=HttpOptions(access_log=access_log))


def entries(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the messages of the access log, and forget them."""
    messages = [record.getMessage() for record in caplog.records if record.name == "poolkeeper.access"]
    caplog.clear()
    return messages


def test_without_a_sample_only_failures_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    site = site_with(AccessLog(slow_ms=60_000, sample_percent=0))  # a busy machine may answer slowly
    site.pool()
    site.get("/pools")
    site.post("/requests", an_ask())
    assert entries(caplog) == []
    site.get("/pools/none")
    site.post("/pools", {})
    site.get("/nothing")
    assert entries(caplog) == ["GET /api/v1/pools/none 404", "POST /api/v1/pools 400", "GET /api/v1/nothing 404"]


def test_a_slow_answer_is_logged_and_a_long_poll_is_not(caplog: pytest.LogCaptureFixture) -> None:
    site = site_with(AccessLog(slow_ms=0, sample_percent=0))  # everything is slower than that
    site.pool()
    assert entries(caplog) == ["POST /api/v1/pools 201"]
    site.policy()
    request = site.submit()["id"]
    caplog.clear()
    site.get(f"/requests/{request}", wait_s=0.01, status="allocated")
    assert entries(caplog) == []
    site.get(f"/requests/{request}", wait_s=99)
    assert entries(caplog) == [f"GET /api/v1/requests/{request} 400"]
    site.services.long_polls.close()


@pytest.mark.parametrize(("percent", "logged"), [(0, 0), (25, 25), (100, 100)])
def test_a_sample_of_the_others_is_logged(caplog: pytest.LogCaptureFixture, percent: int, logged: int) -> None:
    chances: Iterator[float] = iter([number / 100 for number in range(100)])
    site = site_with(AccessLog(slow_ms=60_000, sample_percent=percent, chance=lambda: next(chances)))
    for _ in range(100):
        site.get("/whoami")
    records = [record for record in caplog.records if record.name == "poolkeeper.access"]
    assert len(records) == logged
    assert all(vars(record)["sample_percent"] == percent for record in records), "so that a reader can extrapolate"


def test_a_failure_is_no_part_of_the_sample(caplog: pytest.LogCaptureFixture) -> None:
    site_with(AccessLog(slow_ms=60_000, sample_percent=100)).get("/pools/none")
    (record,) = [record for record in caplog.records if record.name == "poolkeeper.access"]
    assert "sample_percent" not in vars(record)


def test_the_numbers_come_from_the_settings() -> None:
    assert AccessLog.of(Settings()) == AccessLog(slow_ms=500, sample_percent=0)
    settings = Settings(access_log_slow_ms=20, access_log_sample_percent=5)
    assert AccessLog.of(settings) == AccessLog(slow_ms=20, sample_percent=5)


@pytest.mark.parametrize(
    ("peer", "proxies", "client"),
    [
        ("127.0.0.1", None, "203.0.113.9"),
        ("::1", None, "203.0.113.9"),
        ("10.1.2.3", None, "10.1.2.3"),
        ("10.1.2.3", "10.1.0.0/16, 127.0.0.1", "203.0.113.9"),
        ("10.2.2.3", "10.1.0.0/16", "10.2.2.3"),
        ("10.1.2.3", "*", "203.0.113.9"),
        ("10.1.2.3", "127.0.0.1, *", "203.0.113.9"),
        ("10.1.2.3", "", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.0.0/16", "203.0.113.9"),
        ("::ffff:10.1.2.3", None, "10.1.2.3"),
        ("2001:db8::1", "2001:db8::/32", "203.0.113.9"),
        ("", "*", ""),
    ],
)
def test_an_entry_has_the_address_that_a_trusted_proxy_saw(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, peer: str, proxies: str | None, client: str
) -> None:
    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)
    if proxies is not None:
        monkeypatch.setenv("FORWARDED_ALLOW_IPS", proxies)
    app = site_with(AccessLog(slow_ms=60_000, sample_percent=0)).app
    app.test_client().get(
        "/api/v1/none", headers={"X-Forwarded-For": "198.51.100.7, 203.0.113.9"}, environ_base={"REMOTE_ADDR": peer}
    )
    (record,) = [record for record in caplog.records if record.name == "poolkeeper.access"]
    assert vars(record)["client"] == client


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ("2001:db8::7", "2001:db8::7"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("fe80::7%a\x1b[2J", "fe80::7"),
        ("203.0.113.9,", "127.0.0.1"),
        ("unknown", "127.0.0.1"),
        ("x" * 8000, "127.0.0.1"),
    ],
)
def test_only_an_address_is_taken_from_a_proxy(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, forwarded: str, client: str
) -> None:
    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)
    app = site_with(AccessLog(slow_ms=60_000, sample_percent=0)).app
    app.test_client().get("/api/v1/none", headers={"X-Forwarded-For": forwarded}, environ_base={"REMOTE_ADDR": "127.0.0.1"})
    (record,) = [record for record in caplog.records if record.name == "poolkeeper.access"]
    assert vars(record)["client"] == client


def test_the_page_about_logs_shows_the_fields_of_an_entry(caplog: pytest.LogCaptureFixture) -> None:
    (block,) = (block for block in Page(ROOT / "docs" / "operations" / "logs.md").blocks() if block.language == "json")
    site_with(AccessLog(slow_ms=60_000, sample_percent=0)).get("/requests/none")
    (record,) = [record for record in caplog.records if record.name == "poolkeeper.access"]
    assert list(json.loads(block.text)) == list(json.loads(JsonFormatter().format(record)))
