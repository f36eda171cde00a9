"""The methods `Client.shares` (the accounts of a pool as records) and `Client.history`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from poolkeeper import Client
from poolkeeper.errors import NotFound, PoolkeeperError
from poolkeeper.models import PreemptibleSplit, ShareAccount

from tests.support.stub_server import StubServer, refuse, reply

TEAM = {
    "name": "team",
    "kind": "policy",
    "component_type": "step_operator",
    "parent": "lab",
    "weight": 3,
    "mode": None,
    "demand": {"gpu": 12},
    "usage": {"gpu": 4},
    "usage_share": {"gpu": 0.5},
    "demand_share": {"gpu": 1.5},
    "fair_share": {"gpu": 0.75},
    "guarantee_share": {"gpu": 0.25},
    "limit_share": {"gpu": 1.0},
    "satisfaction": 0.5,
    "status": "starving",
    "below_since": "2026-01-31T12:00:00.250Z",
    "allocations": {"non_preemptible": ["a"], "aggressively_preemptible": [], "preemptible": ["b", "c"]},
}


def test_every_node_is_a_record(make_client: Callable[..., Client], stub: StubServer) -> None:
    stub.script(reply({"accounts": [{"name": "gpus", "kind": "pool", "mode": "fair_share"}, TEAM]}))
    pool, team = make_client().shares("gpus")
    assert pool == ShareAccount("gpus", "pool", mode="fair_share")
    assert team == ShareAccount(
        name="team",
        kind="policy",
        component_type="step_operator",
        parent="lab",
        weight=3,
        demand={"gpu": 12},
        usage={"gpu": 4},
        usage_share={"gpu": 0.5},
        demand_share={"gpu": 1.5},
        fair_share={"gpu": 0.75},
        guarantee_share={"gpu": 0.25},
        limit_share={"gpu": 1.0},
        satisfaction=0.5,
        status="starving",
        below_since=datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC),
        allocations=PreemptibleSplit(non_preemptible=("a",), preemptible=("b", "c")),
    )
    assert [(call.method, call.path) for call in stub.calls] == [("GET", "/api/v1/pools/gpus/shares")]


@pytest.mark.parametrize(("status", "starving"), [("non_starving", False), ("starving", True), ("aggressively_starving", True)])
def test_starving_accounts(status: str, starving: bool) -> None:
    assert ShareAccount("team", "policy", status=status).is_starving is starving


def test_a_name_is_one_part_of_the_path(make_client: Callable[..., Client], stub: StubServer) -> None:
    stub.script(refuse(404, "no_such_pool"))
    with pytest.raises(NotFound):
        make_client().shares("a/b")
    assert [call.path for call in stub.calls] == ["/api/v1/pools/a%2Fb/shares"]


def test_what_is_something_else_is_said_to_be() -> None:
    with pytest.raises(PoolkeeperError, match="no answer of Poolkeeper's"):
        ShareAccount.from_json({"name": "team"})


def test_the_history_of_a_pool_is_as_it_is_told(make_client: Callable[..., Client], stub: StubServer) -> None:
    lines = {"times": ["2026-01-31T12:00:00.000Z"], "capacity": {"gpu": [8]}, "series": {"pool": {"gpu": [None]}}}
    stub.script(reply(lines))
    assert make_client().history("a/b") == lines
    assert [call.path for call in stub.calls] == ["/api/v1/pools/a%2Fb/history"]
