"""The checks of the address on which the API listens."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Callable

from app.domain.setting_kinds import InvalidSetting
from app.settings import Settings

_BIND_ERRORS = {
    errno.EADDRINUSE: "port {port} of {host} is in use: stop the process that listens there, or set POOLKEEPER_PORT",
    errno.EADDRNOTAVAIL: "POOLKEEPER_HOST: {host} is not an address of this machine",
    errno.EACCES: "port {port} needs more rights than this user has: set POOLKEEPER_PORT to a port above 1023",
}


def is_loopback(host: str) -> bool:
    """True if only this machine can reach the address."""
    return all(ipaddress.ip_address(address).is_loopback for _, (address, _) in _resolve(host, 0))


def check_bindable(host: str, port: int) -> int:
    """Return the port, or a free port for 0. Raise ValueError, with one line, if the port cannot be bound."""
    family, address = _resolve(host, port)[0]
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError as error:
            why = _BIND_ERRORS.get(error.errno or 0, "cannot listen on port {port} of {host}: " + os.strerror(error.errno or 0))
            raise ValueError(why.format(host=host, port=port)) from error
        return int(probe.getsockname()[1])


def _resolve(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET  # as in gunicorn
    try:
        addresses = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ValueError(f"POOLKEEPER_HOST: {host} cannot be resolved: {error.strerror}") from error
    return [(family, (str(address[4][0]), int(address[4][1]))) for address in addresses]


def require_token_if_reachable(settings: Settings, tokens_exist: Callable[[], bool]) -> None:
    """Raise InvalidSetting if other machines could reach a service that needs no token."""
    if settings.require_token or is_loopback(settings.host) or tokens_exist():
        return
    raise InvalidSetting(
        f"POOLKEEPER_HOST is {settings.host}, which other machines can reach, and there is no token yet, so they could do "
        "everything: set POOLKEEPER_REQUIRE_TOKEN=1, or create a token first with `poolkeeperd token create NAME --role admin`"
    )


def local_url(settings: Settings, port: int) -> str:
    """Return the URL of the service for clients on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
