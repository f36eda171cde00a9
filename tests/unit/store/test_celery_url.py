"""A broker for every form of the ledger's URL but a cluster's, always with the options that keep a worker from going deaf."""

from __future__ import annotations

from typing import Any

import pytest
from kombu import Connection

from app.store.celery_url import KEY_PREFIX, celery_broker
from app.store.connection import StoreMisconfigured


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h", "redis://h:6379/0"),
        ("redis://h:1/3", "redis://h:1/3"),
        ("redis://:p%40ss@h:1/3", "redis://:p%40ss@h:1/3"),
        ("redis://me:p@[::1]:1", "redis://me:p@[::1]:1/0"),
        ("rediss://h:1", "redis://h:1/0"),
        ("unix:///run/a%20b.sock?db=2", "redis+socket:///run/a%20b.sock?virtual_host=2"),
        ("redis+socket:///run/r.sock", "redis+socket:///run/r.sock?virtual_host=0"),
        ("redis+sentinel://a:1,b/main/2", "sentinel://a:1/2;sentinel://b:26379/2"),
    ],
)
def test_how_celery_is_told(url: str, expected: str) -> None:
    broker = celery_broker(url)
    assert broker.url == expected
    assert broker.options["global_keyprefix"] == KEY_PREFIX
    assert (broker.options["socket_timeout"], broker.options["health_check_interval"]) == (10, 10)


@pytest.mark.parametrize(
    ("url", "parameters"),
    [
        ("redis://me:p%40ss@h:1/3", {"host": "h", "port": 1, "db": 3, "username": "me", "password": "p@ss"}),
        ("unix:///run/a%20b.sock?db=2", {"path": "/run/a b.sock", "db": 2, "password": None}),
        ("unix://me:p%40ss@/run/r.sock", {"path": "/run/r.sock", "db": 0, "username": "me", "password": "p@ss"}),
        ("rediss://h:1?ssl_ca_certs=/ca.pem", {"host": "h", "ssl_cert_reqs": "required", "ssl_ca_certs": "/ca.pem"}),
    ],
)
def test_what_celery_makes_of_it(url: str, parameters: dict[str, object]) -> None:
    broker = celery_broker(url)
    connection = Connection(broker.url, transport_options=dict(broker.options), ssl=dict(broker.ssl) or False)
    transport: Any = connection.transport
    channel = transport.Channel.__new__(transport.Channel)
    channel.connection = transport
    understood = channel._connparams()
    assert {name: understood.get(name) for name in parameters} == parameters
    assert ("SSL" in understood["connection_class"].__name__) == bool(broker.ssl)


def test_sentinels_are_asked_with_their_own_words() -> None:
    broker = celery_broker("rediss+sentinel://:p@a:1/main?sentinel_password=q&ssl_ca_certs=/ca.pem")
    assert broker.options["master_name"] == "main"
    sentinel_options = broker.options["sentinel_kwargs"]
    assert (sentinel_options["password"], sentinel_options["ssl"], sentinel_options["ssl_ca_certs"]) == ("q", True, "/ca.pem")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis+cluster://:secret@h:1", "POOLKEEPER_BROKER_URL"),
        ("amqp://guest:secret@h", "scheme"),
        ("redis+socket://run/r.sock", "socket"),
        ("redis://h:port", "port"),
    ],
)
def test_what_cannot_be_a_broker_is_one_line(url: str, message: str) -> None:
    with pytest.raises(StoreMisconfigured) as refusal:
        celery_broker(url)
    assert message in str(refusal.value)
    assert "secret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)
