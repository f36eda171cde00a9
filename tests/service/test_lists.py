"""Lists: pages that together are everything, filters that narrow, places that are those of the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.bootstrap import Services, services
from app.domain.clock import ManualClock
from app.domain.errors import NotFound
from app.domain.models import Request
from app.domain.specs import PolicyAsk, PoolAsk, RequestAsk, WorkspaceSettings
from app.domain.states import State
from app.service.queries import Row
from app.settings import Settings
from app.store.queries import SCAN, SCANS, Wanted
from app.store.scripts import Client


@pytest.fixture
def here(client: Client) -> Services:
    """A pool `p` of 4 gpu, with a policy for `t` (2 reserved) and one for `u`, and a pool `q` of 1 gpu for `t` alone."""
    made = services(client, Settings(), ManualClock())
    made.pools.create("w", PoolAsk(name="p", capacity={"gpu": 4}))
    made.pools.create("w", PoolAsk(name="q", capacity={"gpu": 1}))
    made.pools.set_policy("w", "p", "t", PolicyAsk(priority=5, reserved={"gpu": 2}))
    made.pools.set_policy("w", "p", "u", PolicyAsk(priority=1))
    made.pools.set_policy("w", "q", "t", PolicyAsk(priority=1))
    return made


def submit(here: Services, component: str = "u", **wanted: Any) -> Request:
    return here.requests.submit("w", RequestAsk(component=component, resources={"gpu": wanted.pop("gpu", 1)}, **wanted))


def whole(page: Callable[[Any], tuple[list[Any], Any]]) -> Iterator[Any]:
    """Every row of every page."""
    cursor = None
    while True:
        rows, cursor = page(cursor)
        yield from rows
        if cursor is None:
            return


def test_pages_of_requests_go_back_in_time_and_the_last_says_so(here: Services) -> None:
    ids = [submit(here).id for _ in range(6)]
    page, before = here.lists.requests("w", count=3)
    assert [request.id for request in page] == ids[:2:-1]
    page, before = here.lists.requests("w", before=before, count=3)
    assert ([request.id for request in page], before) == (ids[2::-1], None)


def test_a_row_says_what_a_look_says_but_for_its_places_and_story(here: Services) -> None:
    submit(here, gpu=3), submit(here, "t", gpu=1, lease_s=None, labels={"run": "7"}), submit(here, gpu=2), submit(here, gpu=9)
    rows, _ = here.lists.requests("w")
    looked = [here.requests.look("w", row.id)._replace(position={}, story=()) for row in rows]
    assert [row._replace(position={}, story=()) for row in rows] == looked
    assert {row.status for row in rows} == {State.ALLOCATED, State.QUEUED, State.REJECTED}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted(), [0, 1, 2, 3]),
        (Wanted(status=[State.ALLOCATED]), [0, 1]),
        (Wanted(status=[State.REJECTED, State.QUEUED]), [2, 3]),
        (Wanted(component="t"), [1]),
        (Wanted(component="x", component_type="step_operator"), [3]),
        (Wanted(component="x", component_type="orchestrator"), []),
        (Wanted(component_type="orchestrator"), [0, 1, 2]),
        (Wanted(pool="q"), []),
        (Wanted(pool="p", status=[State.ALLOCATED]), [0, 1]),
        (Wanted(labels={"run": "7"}), [1, 2]),
        (Wanted(labels={"run": "7", "kind": "ä:b"}), [2]),
        (Wanted(labels={"run": "70"}), []),
        (Wanted(labels={"absent": ""}), []),
    ],
)
def test_filters_narrow(here: Services, wanted: Wanted, expected: list[int]) -> None:
    ids = [
        submit(here, gpu=3).id,
        submit(here, "t", labels={"run": "7"}).id,
        submit(here, gpu=4, labels={"run": "7", "kind": "ä:b"}).id,
        submit(here, "x", component_type="step_operator").id,
    ]
    found, _ = here.lists.requests("w", wanted)
    assert [row.id for row in found] == [ids[number] for number in reversed(expected)]


def test_one_among_very_many_is_found_over_several_pages(here: Services) -> None:
    rare = submit(here, gpu=4)
    asks = [RequestAsk(component="u", resources={"gpu": 9})] * (SCAN * SCANS + 50)
    here.requests.submit_all("w", asks)
    page, before = here.lists.requests("w", Wanted(status=[State.ALLOCATED]))
    assert (page, before is not None) == ([], True)
    page, before = here.lists.requests("w", Wanted(status=[State.ALLOCATED]), before)
    assert ([row.id for row in page], before) == ([rare.id], None)


@pytest.mark.parametrize("count", [1, 2, 3, 1000])
def test_the_requests_of_a_pool_in_order_with_their_places(here: Services, count: int) -> None:
    held = [submit(here, gpu=3), submit(here, "t", gpu=1)]
    borrowers = [submit(here, gpu=2), submit(here, gpu=4)]
    owner = submit(here, "t", gpu=1, preemptible=False)

    def rows(view: str) -> list[tuple[str, int | None]]:
        found: Iterator[Row] = whole(lambda cursor: here.lists.of_pool("w", "p", view, cursor, count))
        return [(row.request.id, row.place) for row in found]

    waiting = [(owner.id, 1), (borrowers[0].id, 2), (borrowers[1].id, 3)]
    assert rows("queued") == waiting
    assert rows("active") == [(request.id, None) for request in held]
    assert rows("all") == [*[(request.id, None) for request in held], *waiting]


def test_the_policies_of_a_component_the_most_preferred_first(here: Services) -> None:
    found = here.lists.policies_of("w", "t")
    assert [(pool.name, policy.priority) for pool, policy in found] == [("p", 5), ("q", 1)]
    assert here.lists.policies_of("w", "t", "step_operator") == []


def test_the_newest_events_come_first(here: Services) -> None:
    submit(here), submit(here)
    whole = here.requests.events("w", "0", 1000)
    assert here.lists.newest("w", 1000) == whole[::-1]
    assert here.lists.newest("w", 2) == [whole[-1], whole[-2]]
    assert here.lists.newest("empty") == []


def test_what_is_set_for_the_workspace(here: Services) -> None:
    assert here.lists.unmanaged("w") == "reject"
    here.pools.configure("w", WorkspaceSettings(unmanaged="allow"))
    assert here.lists.unmanaged("w") == "allow"


NEVER_ANSWERED = ["", "x", "a:x", "q:1", "q:1:x", "a:99999999999999999", "q:99999999999999999:1", "b:1", "a:1\n"]


@pytest.mark.parametrize("cursor", NEVER_ANSWERED)
def test_a_cursor_that_was_never_answered_is_refused(here: Services, cursor: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        here.lists.of_pool("w", "p", "all", cursor or "-")


@pytest.mark.parametrize("view", ["queued", "active", "all"])
def test_a_pool_that_is_not_there_has_no_list(here: Services, view: str) -> None:
    with pytest.raises(NotFound):
        here.lists.of_pool("w", "none", view)
