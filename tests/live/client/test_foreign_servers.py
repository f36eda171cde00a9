"""Servers that are not Poolkeeper: another protocol, or TLS where none is expected. The client reports them once, in plain
words."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import pytest
from poolkeeper import Client, errors

from tests.support.stub_server import StubServer

WRITING = ("POST", "/something/else")


@contextmanager
def stranger(meets: Callable[[socket.socket], None]) -> Iterator[tuple[str, list[int]]]:
    """Serve a port and handle each connection with the function; yield the address and the list of connections."""
    came: list[int] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                caller, address = listening.accept()
                came.append(address[1])
                with caller, suppress(OSError):
                    meets(caller)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}", came
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def greets(caller: socket.socket) -> None:
    """Greet a connection as an SSH server does."""
    caller.recv(65536)
    caller.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")


@pytest.mark.parametrize(("method", "path"), [("GET", "/pools"), ("POST", "/pools"), WRITING])
def test_a_port_where_no_http_is_spoken(method: str, path: str, pauses: list[float]) -> None:
    with stranger(greets) as (where, came):
        with pytest.raises(errors.Unavailable) as caught:
            Client(f"http://{where}", sleep=pauses.append).call(method, path)
        assert str(caught.value) == f"the server at http://{where} does not speak HTTP: it answered 'SSH-2.0-OpenSSH_9.2'"
        assert (caught.value.answer_lost, caught.value.code, len(came), pauses) == (False, "not_http", 1, [])


@pytest.mark.parametrize(("method", "path"), [("GET", "/pools"), ("POST", "/pools"), WRITING])
def test_tls_with_a_plain_port(stub: StubServer, pauses: list[float], method: str, path: str) -> None:
    url = stub.url.replace("http:", "https:")
    with pytest.raises(errors.Unavailable) as caught:
        Client(url, sleep=pauses.append).call(method, path)
    assert str(caught.value) == f"the server at {url} does not speak TLS: try {stub.url}"
    assert (caught.value.answer_lost, caught.value.repeated, caught.value.code, pauses) == (False, False, "no_tls", [])
    assert stub.calls == []


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """Return the server side of TLS, with a certificate that no client trusts."""
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subject = ["-subj", "/CN=localhost", "-days", "2", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", *subject],
                   check=True, capture_output=True, timeout=60)  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def shakes_hands(context: ssl.SSLContext) -> Callable[[socket.socket], None]:
    """Return a handler that completes the TLS handshake."""

    def meets(caller: socket.socket) -> None:
        with context.wrap_socket(caller, server_side=True) as inside:
            inside.recv(65536)

    return meets


def test_plain_http_with_a_port_of_tls(pauses: list[float]) -> None:
    def alerts(caller: socket.socket) -> None:
        caller.recv(65536)
        caller.sendall(b"\x15\x03\x01\x00\x02\x02\x46")  # a fatal alert: the version of the protocol

    with stranger(alerts) as (where, _), pytest.raises(errors.Unavailable) as caught:
        Client(f"http://{where}", sleep=pauses.append).call("GET", "/pools")
    assert str(caught.value) == f"the server at http://{where} speaks TLS: try https://{where}"


def test_a_certificate_that_is_not_trusted(tls: ssl.SSLContext, pauses: list[float]) -> None:
    with stranger(shakes_hands(tls)) as (where, came):
        with pytest.raises(errors.Unavailable) as caught:
            Client(f"https://{where}", sleep=pauses.append).call("POST", "/pools", body={})
        assert str(caught.value).startswith(f"the certificate of https://{where} is not trusted: self")
        assert str(caught.value).endswith("; the variable SSL_CERT_FILE names the certificates to trust")
        assert (caught.value.answer_lost, len(came)) == (False, 1)


def test_the_events_of_a_stranger_are_not_waited_for(pauses: list[float]) -> None:
    with stranger(greets) as (where, came):
        with pytest.raises(errors.Unavailable, match="does not speak HTTP"):
            next(Client(f"http://{where}", sleep=pauses.append).events())
        assert (len(came), pauses) == (1, [])


def test_a_host_that_can_be_none() -> None:
    with pytest.raises(errors.Unavailable, match=r"no answer from http://a\.\.b: "):
        Client("http://a..b", tries=1).call("GET", "/pools")
