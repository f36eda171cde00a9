"""A client whose machine is gone, and which the system gives up."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from app.api.server.gunicorn_worker import SEND_WITHIN_S, set_timeouts


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    """Yield the server's side of a connection."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
        server.accept()[0] as accepted,
    ):
        yield accepted


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux only")
def test_the_system_gives_up_a_client_that_acknowledges_nothing(connection: socket.socket) -> None:
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0, "by default it takes a quarter of an hour"
    set_timeouts(connection)
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == SEND_WITHIN_S * 1000
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    idle, interval, count = (
        connection.getsockopt(socket.IPPROTO_TCP, option)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    )
    assert idle + interval * count <= 2 * SEND_WITHIN_S
