"""The Redis that Celery's messages go through, in the words Celery has for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from app.store.connection import StoreMisconfigured, Target, parse, redacted

KEY_PREFIX: Final = "pk-celery:"
"""Before every key that Celery makes, so that nothing of it meets the ledger, or Celery of others on the same Redis."""

STALL_S: Final = 10
"""After which a connection that says nothing is given up. Without both options a worker stays deaf after some failovers."""

_SOCKET: Final = "redis+socket://"


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker's URL, options for its transport, and those of TLS."""

    url: str
    options: Mapping[str, Any]
    ssl: Mapping[str, Any] = field(default_factory=dict)


def broker(url: str) -> Broker:
    """The broker on the Redis of this URL, which may be any form of the ledger's but a cluster, or redis+socket://."""
    target = parse("unix://" + url.removeprefix(_SOCKET) if url.startswith(_SOCKET) else url)
    if target.kind == "cluster":
        raise StoreMisconfigured(
            f"Celery cannot use a cluster as its broker, and {redacted(url)!r} is one: "
            "name a Redis that stands alone in POOLKEEPER_BROKER_URL; it keeps nothing that matters"
        )
    options = {"global_keyprefix": KEY_PREFIX, "socket_timeout": STALL_S, "health_check_interval": STALL_S}
    if target.kind == "sentinel":
        options |= {"master_name": target.service, "sentinel_kwargs": _sentinels(target)}
    return Broker(_url(target), options, _tls(target))


def _url(target: Target) -> str:
    database = target.options.get("db", 0)
    if target.kind == "unix":
        return f"{_SOCKET}{_user(target)}{quote(target.path)}?{urlencode({'virtual_host': database})}"
    scheme = "sentinel" if target.kind == "sentinel" else "redis"
    hosts = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in target.hosts)
    return ";".join(f"{scheme}://{_user(target)}{host}/{database}" for host in hosts)


def _user(target: Target) -> str:
    name, password = (quote(target.options.get(key, ""), safe="") for key in ("username", "password"))
    return f"{name}:{password}@" if name or password else ""


def _tls(target: Target) -> dict[str, Any]:
    if not target.options.get("ssl"):
        return {}
    return {"ssl_cert_reqs": "required"} | {name: value for name, value in target.options.items() if name.startswith("ssl_")}


def _sentinels(target: Target) -> dict[str, Any]:
    """How the Sentinels themselves are asked."""
    return {"socket_timeout": 1, **target.sentinel_options, **({"ssl": True} | _tls(target) if _tls(target) else {})}
