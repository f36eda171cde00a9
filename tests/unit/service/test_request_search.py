"""Searches of requests: by a part of the id, by a text, for the components of a token; and the counts by state."""

from __future__ import annotations

from typing import Any

import pytest

from app.bootstrap import Services, make_services
from app.domain.clock import ManualClock
from app.domain.models import Request
from app.domain.request_filter import RequestCounts, RequestFilter
from app.domain.specs import PolicySpec, PoolSpec, RequestSpec
from app.domain.states import FINAL_STATES, RequestState
from app.settings import Settings
from app.store.connection import RedisClient

LIVE = (RequestState.QUEUED, RequestState.ALLOCATED, RequestState.PREEMPTING)


@pytest.fixture
def here(client: RedisClient) -> Services:
    """Create a pool `p` of 4 gpu, with a policy of each component."""
    made = make_services(client, Settings(), ManualClock())
    made.pools.create("w", PoolSpec(name="p", capacity={"gpu": 4}))
    for component in ("vision", "research"):
        made.pools.set_policy("w", "p", component, PolicySpec())
    return made


def submit(here: Services, component: str = "vision", gpu: int = 1, **fields: Any) -> Request:
    return here.requests.submit("w", RequestSpec(component=component, resources={"gpu": gpu}, **fields))


def found(here: Services, request_filter: RequestFilter) -> list[str]:
    """Return the ids of all pages."""
    ids: list[str] = []
    before = None
    while True:
        rows, before = here.queries.list_requests("w", request_filter, before)
        ids += [row.id for row in rows]
        if before is None:
            return ids


def test_an_id_is_found_by_its_beginning_and_by_its_end(here: Services) -> None:
    first, second = submit(here), submit(here)
    assert found(here, RequestFilter(id_fragment=first.id[-6:])) == [first.id]
    assert found(here, RequestFilter(id_fragment=second.id[:12])) == [second.id]
    assert found(here, RequestFilter(id_fragment=first.id[:4])) == [second.id, first.id]
    assert found(here, RequestFilter(id_fragment=first.id[8:14])) == []
    assert found(here, RequestFilter(id_fragment=first.id)) == [first.id]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ResNet", [0]),
        ("resnet-50", [0]),
        ("Größe", [1]),
        ("ana", [0, 2]),
        ("user=ana", [0]),
        ("user", [0, 1]),
        ("gpu-01", [1]),
        ("research", [2]),
        ("orchestrator", []),
        ("orchestrator/res", [2]),
        ("step_", [3]),
        (".*", []),
        ("%a", []),
    ],
)
def test_a_text_is_a_part_of_the_name_a_label_or_the_component(here: Services, text: str, expected: list[int]) -> None:
    ids = [
        submit(here, name="ResNet-50", labels={"user": "ana"}).id,
        submit(here, labels={"user": "bo", "host": "GPU-01", "note": "Größe"}).id,
        submit(here, "research", name="analysis").id,
        submit(here, "vision", component_type="step_operator").id,
    ]
    assert found(here, RequestFilter(text=text)) == [ids[number] for number in reversed(expected)]


def test_a_text_is_a_part_of_the_id(here: Services) -> None:
    first, _ = submit(here), submit(here)
    assert found(here, RequestFilter(text=first.id[9:17].upper())) == [first.id]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (("orchestrator/vision",), [0, 2]),
        (("orchestrator/vis*",), [0, 2]),
        (("orchestrator/*",), [0, 1, 2]),
        (("orchestrator/other", "orchestrator/research"), [1]),
        ((), []),
    ],
)
def test_only_requests_of_visible_components_are_found(here: Services, visible: tuple[str, ...], expected: list[int]) -> None:
    ids = [submit(here).id, submit(here, "research").id, submit(here, gpu=9).id]
    request_filter = RequestFilter(visible=visible)
    assert found(here, request_filter) == [ids[number] for number in reversed(expected)]
    assert here.queries.count_requests("w", request_filter).all == len(expected)


def _one_in_each_state(here: Services) -> dict[RequestState, str]:
    held, waiting = submit(here, gpu=4), submit(here, gpu=2)
    cancelled, released = submit(here, gpu=3), submit(here, gpu=9)
    here.requests.cancel("w", cancelled.id)
    return {
        RequestState.ALLOCATED: held.id,
        RequestState.QUEUED: waiting.id,
        RequestState.CANCELLED: cancelled.id,
        RequestState.REJECTED: released.id,
    }


@pytest.mark.parametrize(
    "wanted",
    [LIVE, tuple(FINAL_STATES), *[(status,) for status in RequestState], (RequestState.QUEUED, RequestState.REJECTED)],
)
def test_the_sets_of_live_requests_tell_the_states_apart(here: Services, wanted: tuple[RequestState, ...]) -> None:
    ids = _one_in_each_state(here)
    expected = {request_id for status, request_id in ids.items() if status in wanted}
    assert set(found(here, RequestFilter(status=wanted))) == expected


def test_live_requests_are_found_without_reading_those_that_have_ended(here: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    oldest = submit(here, gpu=4)
    here.requests.submit_batch("w", [RequestSpec(component="vision", resources={"gpu": 9})] * 700)
    monkeypatch.setattr("app.store.queries.MAX_SCANS", 1)  # with more than 500 commands the call would end before the oldest
    rows, before = here.queries.list_requests("w", RequestFilter(status=LIVE))
    assert ([row.id for row in rows], before) == ([oldest.id], None)


def test_the_counts_of_all_requests_are_exact(here: Services) -> None:
    _one_in_each_state(here)
    exact = RequestCounts(queued=1, allocated=1, ended=2)
    assert here.queries.count_requests("w") == exact
    assert (exact.live, exact.all) == (2, 4)
    assert here.queries.count_requests("w", RequestFilter(text="vision")) == exact
    assert here.queries.count_requests("w", RequestFilter(text="research")) == RequestCounts()


def test_the_counts_of_a_search_are_those_of_the_newest_requests(here: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(here, name="deep")
    here.requests.submit_batch("w", [RequestSpec(component="vision", resources={"gpu": 9}, name="deep")] * 50)
    monkeypatch.setattr("app.store.queries.SCAN_SIZE", 20)
    monkeypatch.setattr("app.store.queries.MAX_COUNT_SCANS", 2)
    counts = here.queries.count_requests("w", RequestFilter(text="deep"))
    assert counts == RequestCounts(ended=40, is_exact=False)
    monkeypatch.setattr("app.store.queries.MAX_COUNT_SCANS", 3)
    assert here.queries.count_requests("w", RequestFilter(text="deep")) == RequestCounts(allocated=1, ended=50)


def test_queued_rows_have_their_positions_if_wanted(here: Services) -> None:
    held, first, second = submit(here, gpu=4), submit(here, gpu=2), submit(here, gpu=3)
    rows, _ = here.queries.list_requests("w", with_positions=True)
    assert {row.id: dict(row.position) for row in rows} == {held.id: {}, first.id: {"p": 1}, second.id: {"p": 2}}
    without, _ = here.queries.list_requests("w")
    assert without == [replace_position(row) for row in rows]


def replace_position(request: Request) -> Request:
    """Return the request without its positions."""
    return request._replace(position={})


def test_positions_of_very_many_are_those_of_the_first(here: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(here, gpu=4)
    ids = [submit(here, gpu=2).id for _ in range(130)]
    rows, _ = here.queries.list_requests("w", count=200, with_positions=True)
    assert [dict(row.position) for row in rows] == [{"p": 130 - number} for number in range(130)] + [{}]
    monkeypatch.setattr("app.store.queries.MAX_POSITION_CALLS", 1)
    rows, _ = here.queries.list_requests("w", count=200, with_positions=True)
    known = [row.id for row in rows if row.position]
    assert known == ids[: -len(known) - 1 : -1]
    assert 0 < len(known) < 130


def test_events_go_back_in_time_page_by_page(here: Services) -> None:
    for _ in range(3):
        submit(here)
    newest = here.queries.list_latest_events("w", 100)
    first = here.queries.list_latest_events("w", 4)
    rest = here.queries.list_latest_events("w", 100, first[-1].id)
    assert [*first, *rest] == newest
    assert len(newest) == 6
    assert here.queries.list_latest_events("w", 4, newest[-1].id) == []
