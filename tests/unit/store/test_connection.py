"""Connections: every form of URL, one line for each kind of failure, and no wait longer than the timeout."""

from __future__ import annotations

import pytest
import redis.exceptions as errors
from redis.sentinel import MasterNotFoundError

from app.domain.errors import UNAVAILABLE_REASONS
from app.store.connection import RedisTarget, StoreMisconfigured, connect, parse_url, redact_url, translate_error

# ---- URLs


URLS = {
    "redis://h": RedisTarget("redis", (("h", 6379),)),
    "redis://h:7000/3": RedisTarget("redis", (("h", 7000),), options={"db": 3}),
    "redis://h/?db=3": RedisTarget("redis", (("h", 6379),), options={"db": 3}),
    "redis://[::1]:7000": RedisTarget("redis", (("::1", 7000),)),
    "redis://:pa%40ss%2Fword@h": RedisTarget("redis", (("h", 6379),), options={"password": "pa@ss/word"}),
    "redis://ann:secret@h": RedisTarget("redis", (("h", 6379),), options={"username": "ann", "password": "secret"}),
    "rediss://h?ssl_ca_certs=/ca.pem&ssl_check_hostname=false": RedisTarget(
        "redis", (("h", 6379),), options={"ssl": True, "ssl_ca_certs": "/ca.pem", "ssl_check_hostname": False}
    ),
    "unix:///run/redis.sock": RedisTarget("unix", path="/run/redis.sock"),
    "unix:///a%20b/redis.sock?db=2&password=secret": RedisTarget(
        "unix", path="/a b/redis.sock", options={"db": 2, "password": "secret"}
    ),
    "redis+sentinel://a,b:27000/main": RedisTarget("sentinel", (("a", 26379), ("b", 27000)), service="main"),
    "redis+sentinel://:secret@a:1,[::1]:2/main/4?sentinel_password=other": RedisTarget(
        "sentinel",
        (("a", 1), ("::1", 2)),
        service="main",
        options={"password": "secret", "db": 4},
        sentinel_options={"password": "other"},
    ),
    "rediss+sentinel://a/main?ssl_ca_certs=/ca.pem": RedisTarget(
        "sentinel",
        (("a", 26379),),
        service="main",
        options={"ssl": True, "ssl_ca_certs": "/ca.pem"},
    ),
    "redis+cluster://a:7000,b/": RedisTarget("cluster", (("a", 7000), ("b", 6379))),
    "rediss+cluster://ann:secret@a": RedisTarget(
        "cluster", (("a", 6379),), options={"username": "ann", "password": "secret", "ssl": True}
    ),
}


@pytest.mark.parametrize(("url", "target"), URLS.items(), ids=URLS)
def test_what_a_url_says(url: str, target: RedisTarget) -> None:
    assert parse_url(url) == target


WRONG_URLS = {
    "": "its scheme is not known",
    "localhost:6379": "its scheme is not known",
    "http://h": "its scheme is not known",
    "valkey://h": "its scheme is not known",
    "redis+cluster+sentinel://h": "its scheme is not known",
    "redis://": "a host is missing",
    "redis:///0": "a host is missing",
    "redis://h:port": "'h:port' is not a host, or host:port",
    "redis://h:1:2": "'h:1:2' is not a host, or host:port",
    "redis://[::1": "its brackets or characters are not valid",
    "redis://h:0": "the port 0 is not between 1 and 65535",
    "redis://h:65536": "the port 65536 is not between 1 and 65535",
    "redis://h/first": "the database must be a whole number, not 'first'",
    "redis://h?db=-1": "the database must be a whole number, not '-1'",
    "redis://h/1/2": "'2' follows the database, where the URL has to end",
    "redis://h?sockets=1": "the option 'sockets' is not known; there are db, password, sentinel_password",
    "redis://h?sentinel_password=x": "the option 'sentinel_password' is not known",
    "redis://a,b": "several hosts are for redis+sentinel:// and redis+cluster://",
    "redis://:se#cret@h": "a password writes # as %23, / as %2F, ? as %3F and @ as %40",
    "redis://:se/cret@h": "a password writes",
    "redis://:se?cret@h": "a password writes",
    "redis://:se\u2100cret@h": "its brackets or characters are not valid",
    "unix:///s?password=se@cret": "a password writes",
    "unix://": "the path of the socket is missing",
    "unix:///": "the path of the socket is missing",
    "unix://run/redis.sock": "the path of the socket is missing",
    "redis+sentinel://a:1,b:2": "the name of the Sentinel service is missing",
    "redis+sentinel://a,,b/main": "a host is missing",
    "redis+sentinel://a/main/x": "the database must be a whole number, not 'x'",
    "redis+cluster://a/1": "a cluster has no numbered databases",
    "redis+cluster://a?db=1": "a cluster has no numbered databases",
}


@pytest.mark.parametrize(("url", "why"), WRONG_URLS.items(), ids=WRONG_URLS)
def test_a_wrong_url_is_refused_in_one_line_that_says_what_there_is(url: str, why: str) -> None:
    with pytest.raises(StoreMisconfigured) as refusal:
        connect(url)
    message = str(refusal.value)
    assert message.startswith(f"cannot use the Redis URL {redact_url(url)!r}: {why}")
    assert all(scheme in message for scheme in ("redis://", "rediss://", "unix://", "redis+sentinel://", "redis+cluster://"))
    assert "\n" not in message
    assert "cret" not in message


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://:secret@h:1/0", "redis://***@h:1/0"),
        ("redis://ann:sec/ret@h", "redis://***@h"),
        ("redis://ann:sec@ret@h", "redis://***@h"),
        ("ann:secret@h", "***@h"),
        ("unix:///s?password=sec@ret&db=1", "unix:///s?password=***&db=1"),
        ("redis+sentinel://:secret@a,b/m?sentinel_password=secret", "redis+sentinel://***@a,b/m?sentinel_password=***"),
    ],
)
def test_no_password_is_shown(url: str, shown: str) -> None:
    assert redact_url(url) == shown
    assert "secret" not in str(translate_error(errors.ConnectionError("away"), url))


# ---- failures

AWAY = [
    (errors.ConnectionError("Connection refused"), "unreachable"),
    (errors.TimeoutError("Timeout reading"), "timeout"),
    (errors.AuthenticationError("invalid username-password pair"), "denied"),
    (errors.NoPermissionError("no permissions"), "denied"),
    (errors.InvalidResponse("Protocol Error"), "unsuitable"),
    (errors.MovedError("1 127.0.0.1:7001"), "unsuitable"),
    (errors.BusyLoadingError("Redis is loading the dataset in memory"), "loading"),
    (errors.MaxConnectionsError("Too many connections"), "busy"),
    (errors.ResponseError("BUSY Redis is busy running a script."), "busy"),
    (MasterNotFoundError("No master found"), "failing_over"),
    (errors.MasterDownError("Link with MASTER is down"), "failing_over"),
    (errors.ClusterDownError("The cluster is down"), "failing_over"),
    (errors.TryAgainError("Multiple keys request during rehashing of slot"), "failing_over"),
    (errors.ClusterError("TTL exhausted."), "failing_over"),
    (errors.SlotNotCoveredError("Slot 1 is not covered"), "failing_over"),
    (errors.ReadOnlyError("You can't write against a read only replica."), "read_only"),
    (errors.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), "out_of_memory"),
    (errors.ResponseError("MISCONF Errors writing to the AOF file: No space left"), "not_persisting"),
    (errors.ResponseError("NOREPLICAS Not enough good replicas to write."), "not_persisting"),
    (errors.ResponseError("Error running script (call to f_6b): @user_script:1: -OOM command"), "out_of_memory"),
]


@pytest.mark.parametrize(("error", "reason"), AWAY, ids=[str(error) for error, _ in AWAY])
def test_every_way_to_be_away_has_its_reason(error: Exception, reason: str) -> None:
    away = translate_error(error, "redis://:secret@h:1")
    assert away
    assert away.reason == reason
    assert str(away).startswith(f"Redis at redis://***@h:1 {UNAVAILABLE_REASONS[reason]}")
    assert "\n" not in str(away)


@pytest.mark.parametrize(
    "error",
    [
        errors.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"),
        errors.ResponseError("user_script:3: Script attempted to access nonexistent global variable 'x'"),
        errors.NoScriptError("No matching script. Please use EVAL."),
        errors.ClusterCrossSlotError("Keys in request don't hash to the same slot"),
        errors.RedisClusterException("EVALSHA - all keys must map to the same key slot"),
        errors.DataError("Invalid input of type: 'dict'"),
        ValueError("no error of Redis"),
    ],
)
def test_what_is_no_way_to_be_away_is_left_alone(error: Exception) -> None:
    assert translate_error(error, "redis://h") is None
