"""The address of the client of a request, also of a request that came through a proxy."""

from __future__ import annotations

import ipaddress
import os
from functools import cache

from flask import Request

TRUSTED_PROXIES = "FORWARDED_ALLOW_IPS"
"""The variable from which gunicorn reads the addresses and networks of the proxies that it trusts; `*` is every proxy."""
LOOPBACK = "127.0.0.1,::1"

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def client_address(http_request: Request) -> str:
    """Return the address of the client, or "" if there is none.

    If the connection comes from a trusted proxy, the client has the last address in X-Forwarded-For, which the proxy wrote.
    Text that is no address is ignored.
    """
    peer = _parse_address(http_request.remote_addr or "")
    forwarded = _parse_address(http_request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip())
    if peer and forwarded and _is_trusted(peer, os.environ.get(TRUSTED_PROXIES, LOOPBACK)):
        return str(forwarded)
    return str(peer or "")


def _parse_address(text: str) -> Address | None:
    """Return the address, or None if the text is no address. An IPv4 address in its IPv6 form becomes an IPv4 address."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _is_trusted(peer: Address, proxies: str) -> bool:
    names = {text.strip() for text in proxies.split(",")} - {""}
    return "*" in names or any(peer in _network(name) for name in names)


@cache
def _network(text: str) -> Network:
    return ipaddress.ip_network(text)
