"""Lists: pages that together are everything, filters that narrow, places that are those of the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.bootstrap import Services, make_services
from app.domain.clock import ManualClock
from app.domain.errors import NotFound
from app.domain.models import Request
from app.domain.request_filter import RequestFilter
from app.domain.specs import PolicySpec, PoolSpec, RequestSpec, WorkspaceSettings
from app.domain.states import RequestState
from app.service.queries import PoolRequest
from app.settings import Settings
from app.store.connection import RedisClient
from app.store.metrics import MetricsStore
from tests.properties.counted_scripts import BUDGET, CountedScripts

SCAN_SIZE, MAX_SCANS = 100, 3


@pytest.fixture
def here(client: RedisClient) -> Services:
    """Create a pool `p` of 4 gpu with a policy for `t` (2 reserved) and one for `u`, and a pool `q` of 1 gpu for `t`."""
    made = make_services(client, Settings(), ManualClock())
    made.pools.create("w", PoolSpec(name="p", capacity={"gpu": 4}))
    made.pools.create("w", PoolSpec(name="q", capacity={"gpu": 1}))
    made.pools.set_policy("w", "p", "t", PolicySpec(priority=5, reserved={"gpu": 2}))
    made.pools.set_policy("w", "p", "u", PolicySpec(priority=1))
    made.pools.set_policy("w", "q", "t", PolicySpec(priority=1))
    return made


def submit(here: Services, component: str = "u", **fields: Any) -> Request:
    return here.requests.submit("w", RequestSpec(component=component, resources={"gpu": fields.pop("gpu", 1)}, **fields))


def whole(page: Callable[[Any], tuple[list[Any], Any]]) -> Iterator[Any]:
    """Yield every row of every page."""
    cursor = None
    while True:
        rows, cursor = page(cursor)
        yield from rows
        if cursor is None:
            return


def test_pages_of_requests_go_back_in_time_and_the_last_says_so(here: Services) -> None:
    ids = [submit(here).id for _ in range(6)]
    page, before = here.queries.list_requests("w", count=3)
    assert [request.id for request in page] == ids[:2:-1]
    page, before = here.queries.list_requests("w", before=before, count=3)
    assert ([request.id for request in page], before) == (ids[2::-1], None)


def test_a_row_says_what_a_look_says_but_for_its_places_and_story(here: Services) -> None:
    submit(here, gpu=3), submit(here, "t", gpu=1, lease_s=None, labels={"run": "7"}), submit(here, gpu=2), submit(here, gpu=9)
    rows, _ = here.queries.list_requests("w")
    looked = [here.requests.get("w", row.id)._replace(position={}, timeline=()) for row in rows]
    assert [row._replace(position={}, timeline=()) for row in rows] == looked
    assert {row.status for row in rows} == {RequestState.ALLOCATED, RequestState.QUEUED, RequestState.REJECTED}


@pytest.mark.parametrize(
    ("filter_", "expected"),
    [
        (RequestFilter(), [0, 1, 2, 3]),
        (RequestFilter(status=[RequestState.ALLOCATED]), [0, 1]),
        (RequestFilter(status=[RequestState.REJECTED, RequestState.QUEUED]), [2, 3]),
        (RequestFilter(component="t"), [1]),
        (RequestFilter(component="x", component_type="step_operator"), [3]),
        (RequestFilter(component="x", component_type="orchestrator"), []),
        (RequestFilter(component_type="orchestrator"), [0, 1, 2]),
        (RequestFilter(pool="q"), []),
        (RequestFilter(pool="p"), [0, 1, 2]),
        (RequestFilter(pool="p", status=[RequestState.ALLOCATED]), [0, 1]),
        (RequestFilter(labels={"run": "7"}), [1, 2]),
        (RequestFilter(labels={"run": "7", "kind": "ä:b"}), [2]),
        (RequestFilter(labels={"run": "70"}), []),
        (RequestFilter(labels={"absent": ""}), []),
    ],
)
def test_filters_narrow(here: Services, filter_: RequestFilter, expected: list[int]) -> None:
    ids = [
        submit(here, gpu=3).id,
        submit(here, "t", labels={"run": "7"}).id,
        submit(here, gpu=4, labels={"run": "7", "kind": "ä:b"}).id,
        submit(here, "x", component_type="step_operator").id,
    ]
    page, _ = here.queries.list_requests("w", filter_)
    assert [row.id for row in page] == [ids[number] for number in reversed(expected)]


def test_one_among_very_many_is_found_over_several_pages(here: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.store.queries.SCAN_SIZE", SCAN_SIZE)
    monkeypatch.setattr("app.store.queries.MAX_SCANS", MAX_SCANS)
    rare = submit(here, gpu=4)
    asks = [RequestSpec(component="u", resources={"gpu": 9})] * (SCAN_SIZE * MAX_SCANS + 50)
    here.requests.submit_batch("w", asks)
    page, before = here.queries.list_requests("w", RequestFilter(status=[RequestState.ALLOCATED]))
    assert (page, before is not None) == ([], True)
    page, before = here.queries.list_requests("w", RequestFilter(status=[RequestState.ALLOCATED]), before)
    assert ([row.id for row in page], before) == ([rare.id], None)


@pytest.mark.parametrize("count", [1, 2, 3, 1000])
def test_the_requests_of_a_pool_in_order_with_their_places(here: Services, count: int) -> None:
    allocations = [submit(here, gpu=3), submit(here, "t", gpu=1)]
    borrowers = [submit(here, gpu=2), submit(here, gpu=4)]
    owner = submit(here, "t", gpu=1, preemptible=False)

    def rows(view: str) -> list[tuple[str, int | None]]:
        results: Iterator[PoolRequest] = whole(lambda cursor: here.queries.list_pool_requests("w", "p", view, cursor, count))
        return [(row.request.id, row.position) for row in results]

    waiting = [(owner.id, 1), (borrowers[0].id, 2), (borrowers[1].id, 3)]
    assert rows("queued") == waiting
    assert rows("active") == [(request.id, None) for request in allocations]
    assert rows("all") == [*[(request.id, None) for request in allocations], *waiting]


def test_a_page_of_a_queue_is_full_though_a_call_lists_less(here: Services) -> None:
    here.requests.submit_batch("w", [RequestSpec(component="u", resources={"gpu": 4})] * 301)
    rows, cursor = here.queries.list_pool_requests("w", "p", "queued", count=300)
    assert [row.position for row in rows] == list(range(1, 301))
    assert here.queries.list_pool_requests("w", "p", "queued", cursor, count=300) == ([], None)


def test_the_metrics_of_many_policies_are_read_in_parts(here: Services, client: RedisClient) -> None:
    for number in range(150):
        here.pools.set_policy("w", "p", f"t{number}", PolicySpec(reserved={"gpu": number % 2}) if number < 4 else PolicySpec())
    scripts = CountedScripts(client)
    store = MetricsStore(client)
    store._scripts = scripts
    metrics = store.get_pool("w", "p")
    assert metrics
    assert sorted(policy.component for policy in metrics.policies) == sorted(here.pools.get("w", "p").policies)
    assert {policy.component for policy in metrics.policies if policy.amounts["reserved"].get("gpu") == 1} == {
        "orchestrator/t1",
        "orchestrator/t3",
    }
    assert scripts.steps["read_pool_metrics"] < 20 * BUDGET


def test_the_policies_of_a_component_the_most_preferred_first(here: Services) -> None:
    results = here.queries.list_component_policies("w", "t")
    assert [(pool.name, policy.priority) for pool, policy in results] == [("p", 5), ("q", 1)]
    assert here.queries.list_component_policies("w", "t", "step_operator") == []


def test_the_newest_events_come_first(here: Services) -> None:
    submit(here), submit(here)
    whole = here.requests.list_events("w", "0", 1000)
    assert here.queries.list_latest_events("w", 1000) == whole[::-1]
    assert here.queries.list_latest_events("w", 2) == [whole[-1], whole[-2]]
    assert here.queries.list_latest_events("empty") == []


def test_what_is_set_for_the_workspace(here: Services) -> None:
    assert here.queries.get_workspace("w").settings.unmanaged == "reject"
    here.pools.update_workspace("w", WorkspaceSettings(unmanaged="allow"))
    assert here.queries.get_workspace("w").settings.unmanaged == "allow"


NEVER_ANSWERED = ["", "x", "a:x", "q:1", "q:1:x", "a:99999999999999999", "q:99999999999999999:1", "b:1", "a:1\n"]


@pytest.mark.parametrize("cursor", NEVER_ANSWERED)
def test_a_cursor_that_was_never_answered_is_refused(here: Services, cursor: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        here.queries.list_pool_requests("w", "p", "all", cursor or "-")


@pytest.mark.parametrize("view", ["queued", "active", "all"])
def test_a_pool_that_is_not_there_has_no_list(here: Services, view: str) -> None:
    with pytest.raises(NotFound):
        here.queries.list_pool_requests("w", "none", view)
