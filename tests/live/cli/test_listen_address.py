"""The address on which the API listens: beyond loopback only with tokens; and every refusal is one line."""

from __future__ import annotations

import socket

import pytest

from app.cli import serve as run_commands
from app.cli.listen_address import check_bindable, is_loopback, local_url, require_token_if_reachable
from app.domain.setting_kinds import InvalidSetting
from app.settings import Settings


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.1", False),
    ],
)
def test_the_reach_of_an_address(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected


@pytest.mark.parametrize(
    ("host", "required", "exist", "may"),
    [
        ("127.0.0.1", False, False, True),
        ("0.0.0.0", False, False, False),
        ("0.0.0.0", True, False, True),
        ("0.0.0.0", False, True, True),
    ],
)
def test_strangers_are_not_served_without_tokens(host: str, required: bool, exist: bool, may: bool) -> None:
    settings = Settings(host=host, require_token=required)
    if may:
        require_token_if_reachable(settings, lambda: exist)
        return
    with pytest.raises(InvalidSetting) as refusal:
        require_token_if_reachable(settings, lambda: exist)
    for way in ("POOLKEEPER_HOST is 0.0.0.0", "POOLKEEPER_REQUIRE_TOKEN=1", "poolkeeperd token create"):
        assert way in str(refusal.value)


def test_loopback_needs_no_tokens() -> None:
    require_token_if_reachable(Settings(), lambda: pytest.fail("Redis was asked"))


def test_while_redis_is_away_tokens_are_taken_for_granted(caplog: pytest.LogCaptureFixture) -> None:
    away = Settings(redis_url="redis://127.0.0.1:1/0", redis_timeout_s=0.2)
    assert run_commands._tokens_exist(away)
    run_commands._report_unavailable_redis(away)
    (message,) = caplog.messages
    assert ("127.0.0.1:1" in message, "waiting for it" in message, message.count("\n")) == (True, True, 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_that_is_free_is_given_and_one_that_is_not_is_named(host: str) -> None:
    port = check_bindable(host, 0)
    assert check_bindable(host, port) == port
    taken = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    with taken, pytest.raises(ValueError, match=f"port {port} of {host} is in use"):
        check_bindable(host, port)


@pytest.mark.parametrize(
    ("host", "message"),
    [("192.0.2.1", "is not an address of this machine"), ("nowhere.invalid", "nowhere.invalid cannot be resolved")],
)
def test_an_address_of_others_is_named(host: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_bindable(host, 0)


def test_how_it_is_reached_from_here() -> None:
    urls = {host: local_url(Settings(host=host), 80) for host in ("127.0.0.1", "0.0.0.0", "::", "::1", "example.org")}
    assert urls == {
        "127.0.0.1": "http://127.0.0.1:80",
        "0.0.0.0": "http://127.0.0.1:80",
        "::": "http://[::1]:80",
        "::1": "http://[::1]:80",
        "example.org": "http://example.org:80",
    }
