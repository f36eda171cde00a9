"""The URL and options of Celery's Redis broker, made from a Redis URL of the service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from app.store.connection import RedisTarget, StoreMisconfigured, parse_url, redact_url

KEY_PREFIX: Final = "pk-celery:"
"""Before every key that Celery makes, so that nothing of it meets the ledger, or Celery of others on the same Redis."""

STALL_TIMEOUT_S: Final = 10
"""After which a connection that says nothing is given up. Without both options a worker stays deaf after some failovers."""

_SOCKET: Final = "redis+socket://"


@dataclass(frozen=True, slots=True)
class CeleryBroker:
    """A broker's URL, options for its transport, and those of TLS."""

    url: str
    options: Mapping[str, Any]
    ssl: Mapping[str, Any] = field(default_factory=dict)


def celery_broker(url: str) -> CeleryBroker:
    """The broker on the Redis of this URL, which may be any form of the ledger's but a cluster, or redis+socket://."""
    target = parse_url("unix://" + url.removeprefix(_SOCKET) if url.startswith(_SOCKET) else url)
    if target.kind == "cluster":
        raise StoreMisconfigured(
            f"Celery cannot use a cluster as its broker, and {redact_url(url)!r} is one: "
            "name a Redis that stands alone in POOLKEEPER_BROKER_URL; it keeps nothing that matters"
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
    """How the Sentinels themselves are asked."""
    return {"socket_timeout": 1, **target.sentinel_options, **({"ssl": True} | _tls(target) if _tls(target) else {})}
