"""Brokers of people's own apps: read from a file, variables filled in, one line for what is wrong, and no password in it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection

from app import celery_brokers, settings
from app.domain.setting_kinds import InvalidSetting
from app.settings import DEFAULT_FILE, Settings

SECRET = "s3cret"
STALL = {"socket_timeout": 10, "health_check_interval": 10}


def written(folder: Path, text: str) -> Settings:
    """Return settings that name a file with this text."""
    path = folder / "brokers.toml"
    path.write_text(text, encoding="utf-8")
    return Settings(brokers=path)


def read_broker(folder: Path, text: str) -> celery_brokers.TaskBroker:
    """Return the broker of workspace `w`."""
    return celery_brokers.read_brokers(written(folder, f"[w]\n{text}"))["w"]


def test_the_file_in_the_repository_names_none_and_its_example_is_right() -> None:
    path = DEFAULT_FILE.with_name("brokers.toml")
    assert celery_brokers.read_brokers(Settings()) == celery_brokers.read_brokers(Settings(brokers=path)) == {}
    lines = [line.removeprefix("# ") for line in path.read_text("utf-8").splitlines()]
    example = tomllib.loads("\n".join(line for line in lines if line.startswith("[") or " = " in line))
    assert set(example["default"]) == {"url", "start_deadline_s", "start_tries", "transport_options"}


def test_the_example_is_the_default(tmp_path: Path) -> None:
    bare = read_broker(tmp_path, 'url = "redis://h"')
    example = read_broker(tmp_path, 'url = "redis://h"\nstart_deadline_s = 60\nstart_tries = 3\n[w.transport_options]')
    assert bare == example


def test_without_any_file_there_are_none_but_one_that_is_named_must_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "DEFAULT_FILE", tmp_path / "default.toml")
    assert celery_brokers.read_brokers(Settings()) == {}
    with pytest.raises(InvalidSetting, match=r"absent\.toml: cannot be read: No such file"):
        celery_brokers.read_brokers(Settings(brokers=tmp_path / "absent.toml"))


def test_each_workspace_has_its_own(tmp_path: Path) -> None:
    text = '[a]\nurl = "redis://a"\n["team.b"]\nurl = "amqp://b"\nstart_deadline_s = 5\nstart_tries = 1'
    brokers = celery_brokers.read_brokers(written(tmp_path, text))
    assert list(brokers) == ["a", "team.b"]
    assert (brokers["a"].start_deadline_s, brokers["a"].start_tries) == (60, 3)
    assert (brokers["team.b"].start_deadline_s, brokers["team.b"].start_tries) == (5.0, 1)


# ---- what becomes of the URL


@pytest.mark.parametrize(
    ("url", "kombu_url", "options"),
    [
        ("redis://h", "redis://h:6379/0", STALL),
        ("redis://:p%40ss@h:1/3", "redis://:p%40ss@h:1/3", STALL),
        ("unix:///run/r.sock?db=2", "redis+socket:///run/r.sock?virtual_host=2", STALL),
        ("redis+socket:///run/r.sock?virtual_host=2", "redis+socket:///run/r.sock?virtual_host=2", STALL),
        ("sentinel://a:1/2;sentinel://b:2/2", "sentinel://a:1/2;sentinel://b:2/2", STALL),
        ("redis://a/1;redis://b/1", "redis://a/1;redis://b/1", STALL),
        ("amqp://u:p@h//", "amqp://u:p@h//", {"confirm_publish": True, "read_timeout": 10, "write_timeout": 10}),
        ("memory://", "memory://", {}),
    ],
)
def test_how_kombu_is_told(tmp_path: Path, url: str, kombu_url: str, options: dict[str, Any]) -> None:
    address = read_broker(tmp_path, f'url = "{url}"').address({})
    assert (address.url, address.options, address.ssl) == (kombu_url, options, {})


def test_sentinels_are_told_as_the_ledgers_are(tmp_path: Path) -> None:
    address = read_broker(tmp_path, 'url = "redis+sentinel://a:1,b/main/2"').address({})
    assert address.url == "sentinel://a:1/2;sentinel://b:26379/2"
    assert address.options["master_name"] == "main"


@pytest.mark.parametrize(("written_as", "means"), [("", "required"), ("?ssl_cert_reqs=CERT_NONE", "none")])
def test_tls_asks_for_a_certificate_unless_told_otherwise(tmp_path: Path, written_as: str, means: str) -> None:
    assert read_broker(tmp_path, f'url = "rediss://h{written_as}"').address({}).ssl == {"ssl_cert_reqs": means}


def test_what_the_file_says_of_the_transport_goes_first(tmp_path: Path) -> None:
    text = 'url = "redis://h"\n[w.transport_options]\nglobal_keyprefix = "mine:"\nsocket_timeout = 3'
    address = read_broker(tmp_path, text).address({})
    assert address.options == STALL | {"global_keyprefix": "mine:", "socket_timeout": 3}


@pytest.mark.parametrize("url", ["amqp://u:p@h//", "redis://h", "sentinel://a:1/2", "redis+socket:///run/r.sock"])
def test_kombu_takes_it(tmp_path: Path, url: str) -> None:
    address = read_broker(tmp_path, f'url = "{url}"').address({})
    connection = Connection(address.url, transport_options=dict(address.options))
    assert connection.transport
    if url.startswith("amqp"):
        transport: Any = connection.transport
        made = transport.Connection(host="h", **address.options)
        assert (made.confirm_publish, made.read_timeout, made.write_timeout) == (True, 10, 10)


def test_variables_are_filled_in_wherever_they_are(tmp_path: Path) -> None:
    text = 'url = "redis://:${PASSWORD}@${HOST}"\n[w.transport_options]\nsentinel_kwargs = { password = "${PASSWORD}" }'
    address = read_broker(tmp_path, text).address({"PASSWORD": "p", "HOST": "h"})
    assert address.url == "redis://:p@h:6379/0"
    assert address.options["sentinel_kwargs"] == {"password": "p"}


def test_the_list_of_brokers_needs_no_variable(tmp_path: Path) -> None:
    brokers = celery_brokers.read_brokers(written(tmp_path, '[w]\nurl = "${BROKER_OF_W}"'))
    assert list(brokers) == ["w"]
    for environ in ({}, {"BROKER_OF_W": ""}):
        with pytest.raises(InvalidSetting, match=r"brokers\.toml: w: url: the variable BROKER_OF_W is not set$"):
            brokers["w"].address(environ)


# ---- what is wrong

REFUSED = [
    ("url = ", "is not TOML: "),
    (f'url = "redis://:{SECRET}@h"', "url: expected a table: the name of a workspace in brackets"),
    (
        f'[w]\nurls = "redis://:{SECRET}@h"',
        "w: urls: there is no such setting; the settings are url, transport_options, start_deadline_s",
    ),
    ("[w]\nstart_tries = 3", "w: url: expected the URL of the broker"),
    ('[w]\nurl = ""', "w: url: expected the URL of the broker"),
    ("[w]\nurl = 6379", "w: url: expected the URL of the broker"),
    (f'[w]\nurl = ["redis://:{SECRET}@h"]', "w: url: expected the URL of the broker"),
    ('[w]\nurl = "redis://h"\nstart_tries = 0', "w: start_tries: expected a whole number of tries, from 1 to 1000, not 0"),
    ('[w]\nurl = "redis://h"\nstart_deadline_s = "1m"', "w: start_deadline_s: expected a number of seconds, from 1 to"),
    ('[w]\nurl = "redis://h"\ntransport_options = 1', "w: transport_options: expected a table"),
    ('["no name"]\nurl = "redis://h"', "'no name' cannot be a workspace: its name must be 1 to 63 of"),
    ('[team.a]\nurl = "redis://h"', "team: a: there is no such setting"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=range(len(REFUSED)))
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    chosen = written(tmp_path, text)
    with pytest.raises(InvalidSetting) as refusal:
        celery_brokers.read_brokers(chosen)
    assert str(refusal.value).startswith(f"{chosen.brokers}: {message}")
    assert "\n" not in str(refusal.value)
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"redis+cluster://:{SECRET}@h", "Celery cannot use a cluster"),
        (f"redis://:half{SECRET}#other@h", "a password writes # as %23"),
        (f"redis://:{SECRET}:6379", "is not a host"),
        (f"redis://h/{SECRET}", "the database must be a whole number"),
        (f"amqp://u:half/{SECRET}@h", "not a valid URL"),
        (f"amqp://u:half#{SECRET}@h", "not a valid URL"),
        (f"amqp://u:{SECRET}@[h", "not a valid URL"),
        (SECRET, "expected the URL of a broker"),
    ],
)
def test_a_wrong_url_is_refused_in_one_line_that_does_not_show_it(tmp_path: Path, url: str, message: str) -> None:
    chosen = written(tmp_path, f'[w]\nurl = "{url}"')
    with pytest.raises(InvalidSetting) as refusal:
        celery_brokers.check_brokers(chosen)
    assert str(refusal.value).startswith(f"{chosen.brokers}: w: url: ")
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert SECRET not in str(refusal.value)
    assert "half" not in str(refusal.value)


def test_nothing_shows_a_password(tmp_path: Path) -> None:
    text = f'url = "redis://:{SECRET}@h"\n[w.transport_options]\nsentinel_kwargs = {{ password = "{SECRET}" }}'
    destination = read_broker(tmp_path, text)
    assert SECRET not in repr(destination) + repr(destination.address({}))
