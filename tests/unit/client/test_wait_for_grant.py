"""The wait for a grant: long polls, a busy server, a server that cannot be reached, and the end of the time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, urlsplit

import pytest
from poolkeeper import Client, errors, wait_for_grant

from tests.support.backends import wait_until
from tests.support.stub_server import Action, StubServer, cut, refuse, reply

Asking = Callable[..., Client]


def stands(status: str, retry_after: str = "") -> Action:
    """Return an action that answers with the status of the request."""
    return reply({"id": "r", "status": status}, retry_after=retry_after)


def test_one_poll_after_the_other_until_it_is_no_longer_queued(
    make_client: Asking, stub: StubServer, pauses: list[float]
) -> None:
    stub.script(stands("queued"), stands("queued"), stands("allocated"))
    assert make_client().wait("r").status == "allocated"
    [query] = {urlsplit(call.path).query for call in stub.calls}
    assert parse_qs(query) == {"wait_s": ["30.0"], "status": ["queued"]}
    assert pauses == [wait_for_grant.EARLY_RESPONSE_PAUSE_S] * 2


def test_a_full_house_is_given_the_pause_it_asks_for(make_client: Asking, stub: StubServer, pauses: list[float]) -> None:
    stub.script(stands("queued", retry_after="3"), stands("rejected"))
    assert make_client().wait("r").status == "rejected"
    assert pauses == [3]


def test_a_short_absence_is_waited_through(make_client: Asking, stub: StubServer, pauses: list[float]) -> None:
    stub.script(*[refuse(503, "away", retry_after="1")] * 9, cut, stands("allocated"))
    assert make_client(tries=1).wait("r").status == "allocated"
    assert len(pauses) == 9  # the cut costs none: the connection had been used before


def test_a_long_one_is_not(make_client: Asking, stub: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_for_grant, "LONGEST_OUTAGE_S", 0.2)
    client = make_client()
    stub.script(stands("queued"), *[refuse(503, "away", "Redis is away")] * 9_999)
    with pytest.raises(errors.Unavailable, match="Redis is away"):
        client.wait("r")


def test_a_refusal_ends_it(make_client: Asking, stub: StubServer) -> None:
    stub.script(stands("queued"), refuse(404, "no_such_request"))
    with pytest.raises(errors.NotFound):
        make_client().wait("r")


def test_an_absence_as_long_as_the_patience_ends_it(make_client: Asking, stub: StubServer, pauses: list[float]) -> None:
    stub.script(refuse(503, "away", retry_after="60"))
    with pytest.raises(errors.Unavailable):
        make_client().wait("r", timeout_s=5)
    assert pauses == []


def test_no_longer_than_asked(make_client: Asking, stub: StubServer) -> None:
    stub.script(stands("queued"))
    with pytest.raises(errors.WaitTimeout, match="still queued after 0 s") as caught:
        make_client().wait("r", timeout_s=0)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.request.id == "r"
    assert "wait_s=0.0" in stub.calls[0].path


def test_a_poll_is_no_longer_than_what_is_left(make_client: Asking, stub: StubServer) -> None:
    stub.script(stands("allocated"))
    make_client().wait("r", timeout_s=7)
    [query] = parse_qs(urlsplit(stub.calls[0].path).query)["wait_s"]
    assert 6 < float(query) <= 7


def test_the_real_server_answers_as_soon_as_it_is_granted(client: Client) -> None:
    first = client.submit("team", gpu=8)
    second = client.submit("team", gpu=1)
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(client.wait, second.id, 25)
        wait_until(waits.running, "a call waits")
        client.release(first.id, first.fence or 0)
        assert waits.result().is_allocated


def test_the_real_server_lets_it_time_out(client: Client) -> None:
    client.submit("team", gpu=8)
    waits = client.submit("team", gpu=1)
    pauses: list[float] = []
    client._sleep = pauses.append
    with pytest.raises(errors.WaitTimeout) as caught:
        client.wait(waits.id, 0.3)
    assert [pause for pause in pauses if pause > 0.01] == []
    assert caught.value.request.position == {"gpus": 1}
