"""The connection to Redis: a client from a URL, a check of the server, and a named reason for each way it can be unavailable.

The commands of this project can be repeated (each knows its first outcome). So a call that met a broken connection or a timeout
is repeated, at most twice and not beyond the timeout. Other commands must not use these clients.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import redis.exceptions as errors
from redis import Redis
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from app.domain.errors import UNAVAILABLE_REASONS, StoreUnavailable
from app.store.master_id import (
    MasterInDoubt,
    MasterTracker,
    node_pool_class,
    track_cluster,
    track_master,
    tracker_of,
)
from app.store.replica_barrier import NotAcknowledged

RedisClient: TypeAlias = Redis | RedisCluster

CONNECT_TIMEOUT_S: Final = 1.0
RETRIES: Final = 2
CONNECTIONS: Final = 10_000
"""Effectively no bound. A process has as many open calls as threads, and the library's default would refuse the 101st."""
URL_FORMS: Final = (  # with TLS the last two begin with rediss+
    "redis://host:port/db, rediss://host:port/db, unix:///path, "
    "redis+sentinel://host:port,host:port/service/db, redis+cluster://host:port,host:port"
)


class StoreMisconfigured(Exception):  # noqa: N818 - a state of the world
    """The location of the data was given in a way that cannot work. The message is one line for the operator."""


@dataclass(frozen=True)
class RedisTarget:
    """The parts of a URL: the path of a socket, or hosts, and for Sentinel the name of the service."""

    kind: str  # redis, unix, sentinel or cluster
    hosts: tuple[tuple[str, int], ...] = ()
    path: str = ""
    service: str = ""
    options: dict[str, Any] = field(default_factory=dict)  # for the client: db, username, password, ssl and its options
    sentinel_options: dict[str, Any] = field(default_factory=dict)


_KINDS = {"redis": "redis", "rediss": "redis", "unix": "unix"} | {
    f"{scheme}+{kind}": kind for scheme in ("redis", "rediss") for kind in ("sentinel", "cluster")
}
_QUERY = {"username", "password", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
_SENTINEL_QUERY = {"sentinel_username", "sentinel_password"}
_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<name>[^\s:\[\]]+))(?::(?P<port>\d*))?")


def redact_url(url: str) -> str:
    """Return the URL without secrets: without all that is before an @, and without passwords in the query."""
    shown = re.sub(r"(password=)[^&]*", r"\1***", url)
    before, separator_at, after = shown.rpartition("@")
    scheme, separator, _ = before.partition("://")
    return f"{scheme if separator else ''}{separator}***@{after}" if separator_at else shown


def parse_url(url: str) -> RedisTarget:
    """Return the target of a URL. Raise StoreMisconfigured with one line that shows no password."""
    try:
        return _parse_target(url)
    except ValueError as error:
        raise StoreMisconfigured(f"cannot use the Redis URL {redact_url(url)!r}: {error}. It can be: {URL_FORMS}") from None


def _parse_target(url: str) -> RedisTarget:
    scheme, _, rest = url.partition("://")
    if scheme not in _KINDS:
        raise ValueError("its scheme is not known")
    parts, kind = _split(url), _KINDS[scheme]
    if parts.fragment or "@" in parts.path + parts.query:  # the message shows no part of it: it may be half a password
        raise ValueError("a password writes # as %23, / as %2F, ? as %3F and @ as %40")
    options = _options(parts)
    sentinel_options = {name.removeprefix("sentinel_"): options.pop(name) for name in _SENTINEL_QUERY & options.keys()}
    if kind == "unix":
        if not re.match("([^/]*@)?/+[^/]", rest):
            raise ValueError("the path of the socket is missing; it follows three slashes")
        return RedisTarget(kind, path=unquote(parts.path), options=options)
    if scheme.startswith("rediss"):
        options["ssl"] = True
    hosts, path = _hosts(parts, kind), [unquote(part) for part in parts.path.split("/") if part]
    if kind == "sentinel" and not path:
        raise ValueError("the name of the Sentinel service is missing after the hosts")
    service = path.pop(0) if kind == "sentinel" else ""
    if kind == "cluster" and (path or "db" in options):
        raise ValueError("a cluster has no numbered databases")
    if path:
        options["db"] = _database(path.pop(0))
    if path:
        raise ValueError(f"{'/'.join(path)!r} follows the database, where the URL has to end")
    return RedisTarget(kind, hosts, service=service, options=options, sentinel_options=sentinel_options)


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise ValueError("its brackets or characters are not valid") from None  # the library's words may show a password


def _options(parts: SplitResult) -> dict[str, Any]:
    options: dict[str, Any] = {}
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    options |= {name: unquote(text) for name, text in (("username", user), ("password", password)) if text}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "db":
            options[name] = _database(value)
        elif name == "ssl_check_hostname":
            options[name] = value.lower() in ("true", "yes", "1")
        elif name in _QUERY or (name in _SENTINEL_QUERY and parts.scheme.endswith("+sentinel")):
            options[name] = value
        else:
            raise ValueError(f"the option {name!r} is not known; there are db, {', '.join(sorted(_QUERY | _SENTINEL_QUERY))}")
    return options


def _hosts(parts: SplitResult, kind: str) -> tuple[tuple[str, int], ...]:
    texts = parts.netloc.rpartition("@")[2].split(",")
    if len(texts) > 1 and kind == "redis":
        raise ValueError("several hosts are for redis+sentinel:// and redis+cluster://")
    return tuple(_host(text, 26379 if kind == "sentinel" else 6379) for text in texts)


def _host(text: str, default_port: int) -> tuple[str, int]:
    match = _HOST.fullmatch(text)
    if not text or not match:
        raise ValueError(f"{text!r} is not a host, or host:port with the port a number" if text else "a host is missing")
    port = int(match["port"] or default_port)
    if not 0 < port < 65536:
        raise ValueError(f"the port {port} is not between 1 and 65535")
    return match["v6"] or match["name"], port


def _database(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError(f"the database must be a whole number, not {text!r}")
    return int(text)


class FollowingSentinel(Sentinel):
    """The Sentinels of a service. Once `MasterWatch` has chosen the newest of their answers, it decides the master."""

    master_address: tuple[str, int] | None = None

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return the address of the master."""
        if self.master_address:
            return self.master_address
        address: tuple[str, int] = super().discover_master(service_name)  # type: ignore[no-untyped-call]
        return address


class BoundedRetry(Retry):
    """A retry that stops when the time of the call is up: a caller waits for about one timeout, not for several."""

    def __init__(self, timeout_s: float, retries: int = RETRIES) -> None:
        super().__init__(ExponentialWithJitterBackoff(base=0.05, cap=0.5), retries)
        self._timeout_s = timeout_s

    def call_with_retry(
        self,
        do: Callable[[], Any],
        fail: Callable[..., Any],
        is_retryable: Callable[[Exception], bool] | None = None,
        with_failure_count: bool = False,
    ) -> Any:
        until = time.monotonic() + self._timeout_s
        failures = 0
        while True:
            try:
                return do()
            except self._supported_errors as error:
                if is_retryable and not is_retryable(error):
                    raise
                failures += 1
                fail(error, failures) if with_failure_count else fail(error)  # at the end too, because it drops the connection
                pause = self._backoff.compute(failures)
                if (
                    failures > self._retries
                    or isinstance(error, errors.AuthenticationError)
                    or time.monotonic() + pause > until
                ):
                    raise
                time.sleep(pause)


def connect(url: str, timeout_s: float = 5, replicas: int = 0) -> RedisClient:
    """Return a client for the URL, whose calls take about `timeout_s` at most. Raise StoreUnavailable if a cluster is away.

    A reply of a script counts only when this number of `replicas` has confirmed the writes before it.
    """
    client = _connect(parse_url(url), url, timeout_s)
    tracker_of(client).replicas_acknowledge = replicas
    return client


def _connect(target: RedisTarget, url: str, timeout_s: float) -> RedisClient:
    common: dict[str, Any] = {
        "decode_responses": True,
        "protocol": 2,  # its replies have the same form on every server and on the fake, and the server pushes no messages
        "socket_connect_timeout": min(CONNECT_TIMEOUT_S, timeout_s),
        "socket_timeout": timeout_s,
        "health_check_interval": 30,  # a PING, not a grant, finds a connection that died while idle
        "max_connections": CONNECTIONS,
    }
    if target.kind == "cluster":
        return _cluster(target, url, common | target.options | {"socket_timeout": timeout_s / (RETRIES + 1)})
    options = common | target.options | {"retry": BoundedRetry(timeout_s)}
    if target.kind == "sentinel":
        return _master(target, common, options)
    if target.kind == "unix":
        return track_master(Redis(unix_socket_path=target.path, **options))
    return track_master(Redis(*target.hosts[0], **options))


def _master(target: RedisTarget, common: dict[str, Any], options: dict[str, Any]) -> Redis:
    """Return a client of the master that the Sentinels name at each connect. Each Sentinel is asked once, then the next."""
    tls = {name: value for name, value in options.items() if name.startswith("ssl")}
    once = common | tls | target.sentinel_options | {"retry": Retry(NoBackoff(), 0)}
    sentinels = FollowingSentinel(target.hosts, sentinel_kwargs=once, **options)  # type: ignore[no-untyped-call]
    return track_master(cast(Redis, sentinels.master_for(target.service)), options)  # type: ignore[no-untyped-call]


def _cluster(target: RedisTarget, url: str, options: dict[str, Any]) -> RedisCluster:
    """Return a client of a cluster. It reads the slots at once, and counts its retries itself: each has its part of the
    timeout."""
    (host, port), *others = target.hosts
    nodes = [ClusterNode(host, port) for host, port in others]  # type: ignore[no-untyped-call]
    tracker = MasterTracker(options)
    options["connection_pool_class"] = node_pool_class(tracker, tls=bool(options.pop("ssl", False)))
    first = (
        f"redis://[{host}]:{port}" if ":" in host else f"redis://{host}:{port}"
    )  # because the library has pool classes for URLs only
    try:
        client = RedisCluster(url=first, startup_nodes=nodes, retry=Retry(NoBackoff(), RETRIES), **options)
        return track_cluster(client, tracker)
    except (errors.RedisError, errors.RedisClusterException) as error:
        raise translate_error(error, url) or _unavailable("failing_over", url, error) from error


def check_server(client: RedisClient, url: str) -> None:
    """Raise StoreUnavailable, with one line, unless the server answers and has the commands of Redis 6.2."""
    try:
        node: Any = client
        if isinstance(client, RedisCluster):
            node = client.get_redis_connection(client.get_default_node())  # type: ignore[no-untyped-call]
        node.ping()
        # not the version, because forks have other version numbers
        commands = node.execute_command("COMMAND INFO", "GETEX", "ZRANGESTORE")
    except (errors.RedisError, errors.RedisClusterException) as error:
        raise translate_error(error, url) or _unavailable("unsuitable", url, error) from error
    if not all(commands):
        raise StoreUnavailable("unsuitable", f"Redis at {redact_url(url)} is too old: version 6.2 or later is needed")


# the first that matches counts; many are ConnectionErrors
_BY_TYPE: Final[tuple[tuple[str, tuple[type[Exception], ...]], ...]] = (
    ("failing_over", (MasterNotFoundError, MasterInDoubt)),
    ("not_acknowledged", (NotAcknowledged,)),
    ("busy", (errors.MaxConnectionsError,)),
    ("loading", (errors.BusyLoadingError,)),
    ("denied", (errors.AuthenticationError, errors.AuthenticationWrongNumberOfArgsError, errors.NoPermissionError)),
    ("unsuitable", (errors.InvalidResponse, errors.AskError)),  # AskError: a node of a cluster with the URL of a single server
    ("timeout", (errors.TimeoutError,)),
    ("unreachable", (errors.ConnectionError,)),
    ("out_of_memory", (errors.OutOfMemoryError,)),
    ("read_only", (errors.ReadOnlyError,)),
    ("failing_over", (errors.ClusterError, errors.TryAgainError, errors.SlotNotCoveredError)),
)
_BY_CODE: Final = {
    "BUSY": "busy",
    "MISCONF": "not_persisting",
    "NOREPLICAS": "not_persisting",
    "OOM": "out_of_memory",
    "READONLY": "read_only",
}
_CODE = re.compile(r"(?:Error running script .*?@user_script:.*?-)?([A-Z]+) ")
"""The code at the start of an error. Redis 6.2 wraps it if a command in a script failed."""


def translate_error(error: Exception, url: str) -> StoreUnavailable | None:
    """Return StoreUnavailable if the error means that Redis cannot serve; None for any other error, such as a bug."""
    reason = next((reason for reason, kinds in _BY_TYPE if isinstance(error, kinds)), None)
    if not reason and isinstance(error, errors.ResponseError) and (code := _CODE.match(str(error))):
        reason = _BY_CODE.get(code[1])
    if not reason and isinstance(error, errors.RedisClusterException):
        return _translate_cluster_error(error, url)
    return _unavailable(reason, url, error) if reason else None


def _translate_cluster_error(error: errors.RedisClusterException, url: str) -> StoreUnavailable | None:
    """Translate an error of a cluster's client, which wraps the cause. Without a cause, the error is a wrong use of the
    client."""
    cause = error.__cause__ or error.__context__
    if not isinstance(cause, Exception):
        return None
    no_cluster = isinstance(cause, errors.ResponseError)  # the node does not know CLUSTER SLOTS
    return translate_error(cause, url) or (_unavailable("unsuitable", url, error) if no_cluster else None)


def _unavailable(reason: str, url: str, error: Exception) -> StoreUnavailable:
    # after the colon the text lists clients
    text = str(error).partition(" : ")[0] if isinstance(error, MasterNotFoundError) else str(error)
    return StoreUnavailable(reason, f"Redis at {redact_url(url)} {UNAVAILABLE_REASONS[reason]}: {' '.join(text.split())[:300]}")
