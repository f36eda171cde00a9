"""Waiting for a grant: long polls, a busy house, an absent server, the end of patience."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, urlsplit

import pytest
from poolkeeper import Client, errors, wait_for_grant

from tests.support.backends import wait_until
from tests.support.stub_server import Act, StandIn, cuts, refuses, says

Asking = Callable[..., Client]


def stands(status: str, retry_after: str = "") -> Act:
    """How the request stands."""
    return says({"id": "r", "status": status}, retry_after=retry_after)


def test_one_poll_after_the_other_until_it_is_no_longer_queued(asking: Asking, standin: StandIn, slept: list[float]) -> None:
    standin.script(stands("queued"), stands("queued"), stands("allocated"))
    assert asking().wait("r").status == "allocated"
    [query] = {urlsplit(heard.path).query for heard in standin.heard}
    assert parse_qs(query) == {"wait_s": ["30.0"], "status": ["queued"]}
    assert slept == [wait_for_grant.EARLY_RESPONSE_PAUSE_S] * 2


def test_a_full_house_is_given_the_pause_it_asks_for(asking: Asking, standin: StandIn, slept: list[float]) -> None:
    standin.script(stands("queued", retry_after="3"), stands("rejected"))
    assert asking().wait("r").status == "rejected"
    assert slept == [3]


def test_a_short_absence_is_waited_through(asking: Asking, standin: StandIn, slept: list[float]) -> None:
    standin.script(*[refuses(503, "away", retry_after="1")] * 9, cuts, stands("allocated"))
    assert asking(tries=1).wait("r").status == "allocated"
    assert len(slept) == 9  # the cut costs none: the connection had been used before


def test_a_long_one_is_not(asking: Asking, standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_for_grant, "LONGEST_OUTAGE_S", 0.2)
    client = asking()
    standin.script(stands("queued"), *[refuses(503, "away", "Redis is away")] * 9_999)
    with pytest.raises(errors.Unavailable, match="Redis is away"):
        client.wait("r")


def test_a_refusal_ends_it(asking: Asking, standin: StandIn) -> None:
    standin.script(stands("queued"), refuses(404, "no_such_request"))
    with pytest.raises(errors.NotFound):
        asking().wait("r")


def test_an_absence_as_long_as_the_patience_ends_it(asking: Asking, standin: StandIn, slept: list[float]) -> None:
    standin.script(refuses(503, "away", retry_after="60"))
    with pytest.raises(errors.Unavailable):
        asking().wait("r", timeout_s=5)
    assert slept == []


def test_no_longer_than_asked(asking: Asking, standin: StandIn) -> None:
    standin.script(stands("queued"))
    with pytest.raises(errors.WaitTimeout, match="still queued after 0 s") as caught:
        asking().wait("r", timeout_s=0)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.request.id == "r"
    assert "wait_s=0.0" in standin.heard[0].path


def test_a_poll_is_no_longer_than_what_is_left(asking: Asking, standin: StandIn) -> None:
    standin.script(stands("allocated"))
    asking().wait("r", timeout_s=7)
    [asked] = parse_qs(urlsplit(standin.heard[0].path).query)["wait_s"]
    assert 6 < float(asked) <= 7


def test_the_real_server_answers_as_soon_as_it_is_granted(client: Client) -> None:
    first = client.submit("team", gpu=8)
    second = client.submit("team", gpu=1)
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(client.wait, second.id, 25)
        wait_until(waits.running, "somebody waits")
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
