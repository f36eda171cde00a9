"""The address of the client of a request, also of a request that came through a proxy."""

from __future__ import annotations

import ipaddress
import os
from functools import cache

from flask import Request

TRUSTED_PROXIES = "FORWARDED_ALLOW_IPS"
"""The variable from which gunicorn reads the addresses and networks of the proxies that it trusts; `*` is every one."""
LOOPBACK = "127.0.0.1,::1"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def client_address(http_request: Request) -> str:
    """Return the address of the client, or "" if there is none.

    If the connection comes from a trusted proxy, that is the last address in X-Forwarded-For: the one that the proxy saw.
    """
    peer = http_request.remote_addr or ""
    forwarded = http_request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
    if forwarded and _is_trusted(peer, os.environ.get(TRUSTED_PROXIES, LOOPBACK)):
        return forwarded
    return peer


def _is_trusted(peer: str, proxies: str) -> bool:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    return proxies.strip() == "*" or any(address in network for network in _networks(proxies))


@cache
def _networks(proxies: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text.strip(), strict=False) for text in proxies.split(",") if text.strip())
