"""Connections of the client on real sockets: reused, replaced, cut, shared by threads, inherited by a fork."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import main_thread

import pytest
from poolkeeper import Client, errors

from tests.support.backends import free_port, wait_until
from tests.support.stub_server import StubHandler, StubServer, cut, hang, refuse, reply, then_close

Asking = Callable[..., Client]


class TestConnections:
    def test_one_after_the_other_is_one_connection(self, make_client: Asking, stub: StubServer) -> None:
        client = make_client()
        for _ in range(5):
            client.call("GET", "/x")
        assert len({call.connection for call in stub.calls}) == 1

    def test_a_refusal_does_not_end_it(self, make_client: Asking, stub: StubServer) -> None:
        client = make_client()
        stub.script(refuse(404, "none"))
        with pytest.raises(errors.NotFound):
            client.call("GET", "/x")
        client.call("GET", "/x")
        assert len({call.connection for call in stub.calls}) == 1

    @pytest.mark.parametrize("method", ["GET", "POST"])
    def test_one_that_the_server_closed_meanwhile_costs_no_try(
        self, make_client: Asking, stub: StubServer, pauses: list[float], method: str
    ) -> None:
        client = make_client(tries=1)
        stub.script(then_close(reply({})))
        client.call("GET", "/x")
        wait_until(lambda: stub.connections_ended == 1, "the server has closed the connection")
        assert client.call(method, "/y") == {"path": "/api/v1/y"}
        assert (len(stub.calls), pauses) == (2, [])

    def test_one_that_breaks_when_used_again_is_replaced_at_once(
        self, make_client: Asking, stub: StubServer, pauses: list[float]
    ) -> None:
        client = make_client(tries=1)
        client.call("GET", "/x")
        stub.script(cut)
        assert client.call("GET", "/y") == {"path": "/api/v1/y"}
        assert pauses == []

    def test_but_nothing_is_sent_twice_that_may_not_be(self, make_client: Asking, stub: StubServer) -> None:
        client = make_client()
        client.call("GET", "/x")
        stub.script(cut)
        with pytest.raises(errors.Unavailable):
            client.call("POST", "/something/else", body={})
        assert len(stub.calls) == 2

    def test_threads_do_not_wait_for_each_other(self, make_client: Asking, stub: StubServer) -> None:
        client = make_client(timeout_s=30)
        stub.script(hang)
        with ThreadPoolExecutor(9) as threads:
            stuck = threads.submit(client.call, "GET", "/stuck", timeout_s=20)
            wait_until(lambda: stub.calls, "the first call hangs")
            answers = list(threads.map(lambda n: client.call("GET", f"/{n}"), range(64)))
            assert not stuck.done()
            assert answers == [{"path": f"/api/v1/{n}"} for n in range(64)]
            stub.ended.set()
            assert stuck.result() == {"path": "/api/v1/stuck"}

    def test_a_fork_has_its_own(self, make_client: Asking, stub: StubServer) -> None:
        client = make_client()
        client.call("GET", "/before")
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os._exit(0 if client.call("GET", "/child") == {"path": "/api/v1/child"} else 1)
        assert os.waitpid(child, 0)[1] == 0
        client.call("GET", "/after")
        before, forked, after = stub.calls
        assert before.connection == after.connection != forked.connection

    def test_a_ctrl_c_in_the_middle_leaves_no_half_answer_behind(self, make_client: Asking, stub: StubServer) -> None:
        client = make_client()
        client.call("GET", "/before")

        def interrupts_then_answers(handler: StubHandler) -> None:
            signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)
            reply({"late": True})(handler)

        stub.script(interrupts_then_answers)
        with pytest.raises(KeyboardInterrupt):
            client.call("GET", "/interrupted")
        assert client.call("GET", "/x") == {"path": "/api/v1/x"}

    def test_a_refusal_of_a_body_too_large_to_be_read_is_heard(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:

            def refuse() -> None:
                connection, _ = server.accept()
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")

            refused = threads.submit(refuse)
            client = Client(f"http://127.0.0.1:{server.getsockname()[1]}", tries=1)
            with pytest.raises(errors.ApiError) as caught:
                client.call("PUT", "/x", body="x" * 8_000_000)
            assert caught.value.status == 413
            refused.result()

    def test_no_server(self, pauses: list[float]) -> None:
        url = f"http://127.0.0.1:{free_port()}"
        client = Client(url, tries=3, sleep=pauses.append)
        with pytest.raises(errors.Unavailable, match=f"^no answer from {url}: Connection refused$") as caught:
            client.call("POST", "/something/else", body={})
        assert (len(pauses), caught.value.repeated, caught.value.code) == (2, False, "unreachable")
