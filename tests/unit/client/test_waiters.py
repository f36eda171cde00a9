"""Requests that a process waits for: their queue TTL, polls that are refused, and a request that expired all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from poolkeeper import Client, errors, wait_for_grant, waiters

from tests.support.backends import wait_until
from tests.support.stub_server import Action, StubHandler, StubServer, refuse, reply
from tests.unit.client.test_allocation import meanwhile

Asking = Callable[..., Client]
REFUSED = refuse(401, "unknown_token", "this token is expired")
RELEASED = reply({"id": "r2", "status": "released", "outcome": "succeeded"})


def stands(status: str, request: str = "r", reason: str | None = None) -> Action:
    """Return an action that answers with the status of a request."""
    return reply({"id": request, "status": status, "fence": 3, "reason": reason and {"code": reason}, "queue_ttl_s": 60})


def hold_until_released(handler: StubHandler) -> None:
    """Answer a release; answer any other call with the second request, allocated."""
    act = RELEASED if handler.path.endswith("/release") else stands("allocated", "r2")
    act(handler)


@pytest.mark.parametrize(("given", "expected"), [({}, 60), ({"queue_ttl_s": 90}, 90), ({"queue_ttl_s": None}, None)])
def test_an_allocation_waits_under_a_short_ttl_or_its_own(client: Client, given: dict[str, Any], expected: int | None) -> None:
    holder = client.submit("team", gpu=8)
    ttls: list[int | None] = []

    def look_and_free() -> None:
        wait_until(lambda: client.pool("gpus").queue_length == 1, "it waits")
        ttls.extend(request.queue_ttl_s for request in client.requests(status="queued"))
        client.release(holder.id, holder.fence or 0)

    with meanwhile(look_and_free), client.allocation("team", gpu=8, wait_s=30, **given):
        assert ttls == [expected]
    assert client.submit("team", gpu=1).queue_ttl_s == 600


def test_polls_go_on_while_a_token_is_replaced(make_client: Asking, stub: StubServer, caplog: pytest.LogCaptureFixture) -> None:
    stub.script(stands("queued"), *[REFUSED] * 5, stands("allocated"))
    assert make_client().wait("r").is_allocated
    assert [record.message for record in caplog.records] == [
        "request r: polls are refused, and repeated: this token is expired"
    ]


def test_polls_that_were_never_accepted_do_not_go_on(make_client: Asking, stub: StubServer) -> None:
    stub.script(REFUSED)
    with pytest.raises(errors.AccessDenied):
        make_client().wait("r")


def test_polls_that_are_refused_for_long_end_the_wait(
    make_client: Asking, stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_for_grant, "LONGEST_OUTAGE_S", 0.1)
    stub.script(stands("queued"), *[REFUSED] * 9_999)
    with pytest.raises(errors.AccessDenied):
        make_client().wait("r")


def test_a_request_that_expired_although_it_was_waited_for_is_submitted_again(make_client: Asking, stub: StubServer) -> None:
    stub.script(stands("queued"), REFUSED, stands("expired", reason="not_polled"))
    stub.script(stands("queued", "r2"), *[hold_until_released] * 99)
    stub.actions.insert(1, stands("queued"))
    with make_client().allocation("team", idempotency_key="job", lease_s=None) as allocation:
        assert allocation.request.id == "r2"
    submits = [call for call in stub.calls if call.path.partition("?")[0].endswith("/requests")]
    assert [call.headers["idempotency-key"] for call in submits] == ["job", "job+2"]
    assert [call.path.partition("?")[2] for call in submits] == ["wait_s=30.0", ""]
    assert submits[0].body == submits[1].body
    assert submits[0].body["queue_ttl_s"] == 60


@pytest.mark.parametrize("reason", ["not_polled", "lease_lapsed"])
def test_a_request_that_had_expired_before_is_not(make_client: Asking, stub: StubServer, reason: str) -> None:
    acts = (
        [stands("expired", reason=reason)] if reason == "not_polled" else [stands("queued"), stands("expired", reason=reason)]
    )
    stub.script(*acts)
    with pytest.raises(errors.NotGranted, match="is expired"), make_client().allocation("team", idempotency_key="job"):
        pytest.fail("it was entered")
    assert len(stub.calls) == len(acts)


def test_the_next_key_is_made_from_the_last() -> None:
    assert waiters.next_key("job") == "job+2"
    assert waiters.next_key("job+2") == "job+3"
    assert waiters.next_key("a+b") == "a+b+2"
    assert len(waiters.next_key("k" * 255)) <= 255
