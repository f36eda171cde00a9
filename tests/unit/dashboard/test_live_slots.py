"""The streams of open pages: beside those of the API, and a share for each token."""

from __future__ import annotations

from contextlib import ExitStack

from tests.unit.dashboard.page_client import Desk

DASHBOARDS = 40
"""A sixteenth of 640 threads; a token has a quarter of them."""


def test_streams_of_the_api_leave_pages_live(desk: Desk) -> None:
    slots = desk.services.long_polls.slots
    with ExitStack() as stack:
        while stack.enter_context(slots.slot("stream")):
            pass
        while stack.enter_context(slots.slot("poll")):
            pass
        response = desk.visitor().http.get("/live", buffered=False)
        stack.callback(response.close)
        assert response.status_code == 200
        assert slots.used()["dashboard"] == 1
    assert set(slots.used().values()) == {0}


def test_a_token_has_a_share_of_the_pages(desk: Desk) -> None:
    visitor, other = desk.visitor(desk.token("viewer")), desk.visitor(desk.token("viewer"))
    with ExitStack() as stack:
        responses = [visitor.http.get("/live", buffered=False) for _ in range(DASHBOARDS // 4 + 1)]
        responses.append(other.http.get("/live", buffered=False))
        for response in responses:
            stack.callback(response.close)
        assert [response.status_code for response in responses] == [200] * (DASHBOARDS // 4) + [429, 200]
        assert responses[-2].headers["Retry-After"] == "1"


def test_a_token_has_one_dry_run_at_a_time(desk: Desk) -> None:
    desk.pool()
    visitor = desk.visitor(desk.token("admin"))
    (holder,) = (record.id for record in desk.services.tokens.list_tokens())
    with desk.services.dry_run_shares.turn(holder):
        response = visitor.send("/pools/gpus/resize", {"capacity.gpu": "4"})
        assert (response.status_code, response.headers["Retry-After"]) == (429, "1")
    assert visitor.send("/pools/gpus/resize", {"capacity.gpu": "4"}).status_code == 200
