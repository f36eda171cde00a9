"""The connections that wait for their clients to close them, with sockets and a poller that only note what is asked of them."""

from __future__ import annotations

from typing import Any

from app.api.server import lingering_sockets
from app.api.server.lingering_sockets import LingeringSockets


class StubSocket:
    """A socket whose client sends nothing more."""

    closed = False

    def setblocking(self, _: bool) -> None:
        """Do nothing."""

    def shutdown(self, _: int) -> None:
        """Send nothing."""

    def recv(self, _: int) -> bytes:
        """Return the end of the stream."""
        return b""

    def close(self) -> None:
        """Note the end."""
        self.closed = True


class StubPoller:
    """A poller that keeps what to call for each socket."""

    def __init__(self) -> None:
        self.callbacks: dict[Any, Any] = {}

    def register(self, sock: Any, _: int, callback: Any) -> None:
        """Keep the callback."""
        self.callbacks[sock] = callback

    def unregister(self, sock: Any) -> None:
        """Forget the socket."""
        del self.callbacks[sock]


def test_an_event_of_a_socket_that_was_closed_meanwhile_is_ignored(monkeypatch: Any) -> None:
    monkeypatch.setattr(lingering_sockets, "MAX_SOCKETS", 1)
    poller: Any = StubPoller()
    lingering = LingeringSockets(poller)
    first: Any = StubSocket()
    second: Any = StubSocket()
    lingering.add(first)
    drain = poller.callbacks[first]
    lingering.add(second)
    assert (first.closed, second.closed) == (True, False)
    drain(first)  # its event was in the same look as the one that closed it
    poller.callbacks[second](second)
    assert second.closed
