"""The URL and options of Celery's Redis broker, made from a Redis URL of the service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from app.store.connection import RedisTarget, StoreMisconfigured, parse_url, redact_url

KEY_PREFIX: Final = "pk-celery:"
"""The prefix of all keys of Celery. It keeps them apart from the ledger and from other Celery apps on the same Redis."""

STALL_TIMEOUT_S: Final = 10
"""Seconds after which a silent connection is given up. Without both options a worker stays deaf after some failovers."""

_SOCKET: Final = "redis+socket://"


@dataclass(frozen=True, slots=True)
class CeleryBroker:
    """The URL of a broker, the options of its transport, and those of TLS."""

    url: str
    options: Mapping[str, Any]
    ssl: Mapping[str, Any] = field(default_factory=dict)


def celery_broker(url: str) -> CeleryBroker:
    """Return the broker on the Redis of a URL: any URL of the ledger but a cluster's, or redis+socket://."""
    target = parse_url("unix://" + url.removeprefix(_SOCKET) if url.startswith(_SOCKET) else url)
    if target.kind == "cluster":
        raise StoreMisconfigured(
            f"Celery cannot use a cluster as its broker, and {redact_url(url)!r} is one: "
            "set POOLKEEPER_BROKER_URL to a single Redis server; it keeps no data that matters"
        )
    options = {"global_keyprefix": KEY_PREFIX, "socket_timeout": STALL_TIMEOUT_S, "health_check_interval": STALL_TIMEOUT_S}
    if target.kind == "sentinel":
        options |= {"master_name": target.service, "sentinel_kwargs": _sentinel_options(target)}
    return CeleryBroker(_url(target), options, _tls(target))


def _url(target: RedisTarget) -> str:
    database = target.options.get("db", 0)
    if target.kind == "unix":
        return f"{_SOCKET}{_user(target)}{quote(target.path)}?{urlencode({'virtual_host': database})}"
    scheme = "sentinel" if target.kind == "sentinel" else "redis"
    hosts = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in target.hosts)
    return ";".join(f"{scheme}://{_user(target)}{host}/{database}" for host in hosts)


def _user(target: RedisTarget) -> str:
    name, password = (quote(target.options.get(key, ""), safe="") for key in ("username", "password"))
    return f"{name}:{password}@" if name or password else ""


def _tls(target: RedisTarget) -> dict[str, Any]:
    if not target.options.get("ssl"):
        return {}
    return {"ssl_cert_reqs": "required"} | {name: value for name, value in target.options.items() if name.startswith("ssl_")}


def _sentinel_options(target: RedisTarget) -> dict[str, Any]:
    """Return the options of the connections to the Sentinels."""
    return {"socket_timeout": 1, **target.sentinel_options, **({"ssl": True} | _tls(target) if _tls(target) else {})}
