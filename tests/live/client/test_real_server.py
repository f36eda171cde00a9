"""The client with the API under gunicorn, over sockets: a request, a wait, a stream of events, and a block that forks."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

from poolkeeper import Client

from tests.support.backends import wait_until
from tests.support.flaky_proxy import FlakyProxy


def test_submit_look_heartbeat_release(client: Client) -> None:
    request = client.submit("team", gpu=2, labels={"run": "7"})
    assert (request.status, request.pool, request.labels) == ("allocated", "gpus", {"run": "7"})
    beat = client.heartbeat(request.id, request.fence or 0)
    assert (beat.id, beat.status, beat.directive) == (request.id, "allocated", "continue")
    assert client.release(request.id, request.fence or 0, "failed").outcome == "failed"
    assert [entry.event for entry in client.timeline(request.id)] == ["submitted", "allocated", "released"]


def test_a_wait_is_answered_as_soon_as_it_is_granted(client: Client) -> None:
    first = client.submit("team", gpu=8)
    second = client.submit("team", gpu=1)
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(client.wait, second.id, 25)
        wait_until(waits.running, "the second request is waited for")
        client.release(first.id, first.fence or 0)
        assert waits.result().is_allocated


def test_events_go_on_after_a_cut(proxy: FlakyProxy, proxied: Client) -> None:
    events = proxied.events(after="0", component="team")
    request = proxied.submit("team", gpu=2)
    output = [next(events), next(events)]
    proxy.close()
    proxy.open()
    proxied.release(request.id, request.fence or 0)
    output += [next(events)]
    assert [event["event"] for event in output] == ["submitted", "allocated", "released"]
    assert {event["request"] for event in output} == {request.id}


def test_a_fork_that_leaves_the_block_releases_nothing(client: Client) -> None:
    with client.allocation("team", gpu=1) as allocation:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            allocation.__exit__(None, None, None)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert client.request(allocation.request.id).is_allocated
    assert client.request(allocation.request.id).outcome == "succeeded"
