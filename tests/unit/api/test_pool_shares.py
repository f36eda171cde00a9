"""Shares over HTTP: the tree, and the parts of it that a token may see."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest
from werkzeug.datastructures import Headers

from app.api.handlers.pool_shares import get_pool_shares
from app.api.metrics.process_metrics import ProcessMetrics
from app.api.routing import Call
from app.api.schemas.pool_shares import PoolSharesResponse
from app.bootstrap import Services
from app.domain.pool_shares import ShareAccount
from app.domain.tokens import ANONYMOUS, Role, Token
from tests.support.in_process_api import NOW, Site

NOTHING: dict[str, list[str]] = {"non_preemptible": [], "aggressively_preemptible": [], "preemptible": []}
POOL = ShareAccount(
    name="gpus",
    kind="pool",
    component_type=None,
    parent=None,
    weight=1,
    mode="fair_share",
    demand={"gpu": 12},
    usage={"gpu": 8},
    usage_share={"gpu": 1.0},
    demand_share={"gpu": 1.5},
    fair_share={"gpu": 1.0},
    guarantee_share={"gpu": 1.0},
    limit_share={"gpu": 1.0},
    satisfaction=1.0,
    status="non_starving",
    below_since_ms=None,
    non_preemptible=(),
    aggressively_preemptible=(),
    preemptible=(),
)
TEAM = replace(
    POOL,
    name="team",
    kind="policy",
    component_type="orchestrator",
    parent=None,
    weight=3,
    mode=None,
    satisfaction=1 / 3,
    status="starving",
    below_since_ms=1_700_000_000_000,
    non_preemptible=("a",),
    aggressively_preemptible=("b", "c"),
    preemptible=("d",),
)
IDLE = replace(TEAM, name="idle", component_type="step_operator", satisfaction=None, status="non_starving", below_since_ms=None)
SEEN = {"non_preemptible": ["a"], "aggressively_preemptible": ["b", "c"], "preemptible": ["d"]}


class FixedShares:
    """Returns the same accounts for every pool, and records the calls."""

    def __init__(self, *accounts: ShareAccount) -> None:
        self.accounts, self.calls = accounts, list[tuple[str, str]]()

    def get(self, workspace: str, pool: str) -> tuple[ShareAccount, ...]:
        """Return the accounts, whatever the pool."""
        self.calls.append((workspace, pool))
        return self.accounts


class SharesAlone:
    """Services with nothing but pool shares."""

    def __init__(self, *accounts: ShareAccount) -> None:
        self.pool_shares = FixedShares(*accounts)


def accounts_json(services: SharesAlone, token: Token = ANONYMOUS) -> list[dict[str, Any]]:
    """Return the accounts as JSON, as far as the token may see them."""
    call = Call(cast(Services, services), token, "lab", Headers(), lambda: False, ProcessMetrics(), lambda: False)
    answer = get_pool_shares(call, "gpus")
    assert isinstance(answer, PoolSharesResponse)
    document = json.loads(answer.model_dump_json(by_alias=True))
    assert document.keys() == {"accounts"}
    accounts: list[dict[str, Any]] = document["accounts"]
    return accounts


def test_a_node_is_told_in_full() -> None:
    services = SharesAlone(POOL, TEAM)
    pool, team = accounts_json(services)
    assert services.pool_shares.calls == [("lab", "gpus")]
    assert pool == {
        "name": "gpus",
        "kind": "pool",
        "component_type": None,
        "parent": None,
        "weight": 1,
        "mode": "fair_share",
        "demand": {"gpu": 12},
        "usage": {"gpu": 8},
        "usage_share": {"gpu": 1.0},
        "demand_share": {"gpu": 1.5},
        "fair_share": {"gpu": 1.0},
        "guarantee_share": {"gpu": 1.0},
        "limit_share": {"gpu": 1.0},
        "satisfaction": 1.0,
        "status": "non_starving",
        "below_since": None,
        "allocations": NOTHING,
    }
    assert team == pool | {
        "name": "team",
        "kind": "policy",
        "component_type": "orchestrator",
        "parent": None,
        "weight": 3,
        "mode": None,
        "satisfaction": 1 / 3,
        "status": "starving",
        "below_since": "2023-11-14T22:13:20.000Z",
        "allocations": SEEN,
    }


def test_units_are_told_of_the_keys_of_the_pool() -> None:
    (account,) = accounts_json(SharesAlone(replace(POOL, demand={"gpu": 12, "step_run": 3}, usage={"step_run": 2})))
    assert (account["demand"], account["usage"]) == ({"gpu": 12}, {"gpu": 0})


def test_an_infinite_satisfaction_is_null() -> None:
    assert [account["satisfaction"] for account in accounts_json(SharesAlone(POOL, TEAM, IDLE))] == [1.0, 1 / 3, None]


def test_the_order_is_kept() -> None:
    lab = replace(POOL, name="lab", kind="group", parent=None, mode="fifo")
    accounts = accounts_json(SharesAlone(POOL, lab, replace(TEAM, parent="lab"), IDLE))
    assert [(account["name"], account["parent"], account["mode"]) for account in accounts] == [
        ("gpus", None, "fair_share"),
        ("lab", None, "fifo"),
        ("team", "lab", None),
        ("idle", None, None),
    ]


@pytest.mark.parametrize(
    ("role", "components", "team", "idle"),
    [
        (Role.ADMIN, (), SEEN, SEEN),
        (Role.OPERATOR, (), SEEN, SEEN),
        (Role.VIEWER, (), SEEN, SEEN),
        (Role.REQUESTER, ("team",), SEEN, NOTHING),
        (Role.REQUESTER, ("step_operator/idle", "idle"), NOTHING, SEEN),
        (Role.REQUESTER, ("step_operator/team",), NOTHING, NOTHING),
    ],
)
def test_a_requester_is_told_the_numbers_of_all_and_the_allocations_of_its_own(
    role: Role, components: tuple[str, ...], team: dict[str, list[str]], idle: dict[str, list[str]]
) -> None:
    services = SharesAlone(POOL, TEAM, IDLE)
    whole = accounts_json(services)
    visible = accounts_json(services, Token(id="t", name="t", role=role, workspaces=("*",), components=components))
    assert [account["allocations"] for account in visible] == [NOTHING, team, idle]
    for account, full in zip(visible, whole, strict=True):
        assert account | {"allocations": None} == full | {"allocations": None}


# ---- on the real service


def a_divided_pool(site: Site) -> tuple[str, str]:
    """Divide 8 gpu: `team` in the group `lab` uses 6, `other` waits for 4 that are due to it; return the ids of both
    requests."""
    site.pool(settings={"discipline": "fair_share"})
    site.put("/pools/gpus/groups/lab", {"reserved": {"gpu": 2}})
    site.policy("team", group="lab")
    site.policy("step_operator/other", weight=2)
    allocation, waits = site.submit("team", gpu=6), site.submit("step_operator/other", gpu=4)
    assert (allocation["status"], waits["status"]) == ("allocated", "queued")
    return allocation["id"], waits["id"]


def accounts_of(site: Site, token: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the accounts by name, in order."""
    answer = site.get("/pools/gpus/shares", token=token)
    assert answer.status == 200, answer
    return {account["name"]: account for account in answer.body["accounts"]}


def test_a_pool_is_divided(everywhere: Site) -> None:
    allocation, _ = a_divided_pool(everywhere)
    accounts = accounts_of(everywhere)
    assert [(account["name"], account["kind"], account["parent"], account["mode"]) for account in accounts.values()] == [
        ("gpus", "pool", None, "fair_share"),
        ("lab", "group", None, "fair_share"),
        ("team", "policy", "lab", None),
        ("other", "policy", None, None),
    ]
    assert {name: (account["usage"], account["demand"]) for name, account in accounts.items()} == {
        "gpus": ({"gpu": 6}, {"gpu": 10}),
        "lab": ({"gpu": 6}, {"gpu": 6}),
        "team": ({"gpu": 6}, {"gpu": 6}),
        "other": ({"gpu": 0}, {"gpu": 4}),
    }
    shares = ("usage_share", "demand_share", "fair_share", "guarantee_share", "limit_share")
    numbers = {name: [account[share]["gpu"] for share in shares] for name, account in accounts.items()}
    assert numbers["gpus"] == pytest.approx([0.75, 1.25, 1.0, 1.0, 1.0])
    assert numbers["lab"] == pytest.approx([0.75, 0.75, 0.5, 0.25, 1.0])
    assert numbers["team"] == pytest.approx([0.75, 0.75, 0.5, 0.0, 1.0])
    assert numbers["other"] == pytest.approx([0.0, 0.5, 0.5, 0.0, 1.0])
    assert (accounts["team"]["satisfaction"], accounts["other"]["satisfaction"]) == (pytest.approx(1.5), 0.0)
    assert accounts["team"]["allocations"] == NOTHING | {"non_preemptible": [allocation]}
    assert accounts["other"]["allocations"] == NOTHING
    assert {name: account["below_since"] for name, account in accounts.items()} == dict.fromkeys(accounts) | {"other": NOW}


def test_a_requester_sees_whose_turn_it_is_and_its_own_allocations(site: Site) -> None:
    allocation, _ = a_divided_pool(site)
    mine = accounts_of(site, site.token("requester", "team"))
    foreign = accounts_of(site, site.token("requester", "step_operator/other"))
    assert mine["team"]["allocations"] == NOTHING | {"non_preemptible": [allocation]}
    assert foreign["team"]["allocations"] == NOTHING
    assert foreign["team"]["fair_share"] == mine["team"]["fair_share"]


def test_a_pool_of_another_discipline_has_shares_and_no_starving_account(site: Site) -> None:
    site.pool()
    site.policy(reserved={"gpu": 4})
    site.submit(gpu=8)
    site.submit(gpu=8)
    accounts = accounts_of(site)
    assert [(account["usage_share"], account["status"], account["below_since"]) for account in accounts.values()] == [
        ({"gpu": 1.0}, "non_starving", None)
    ] * 2


def test_a_pool_that_is_not_there_has_no_shares(site: Site) -> None:
    site.get("/pools/none/shares").refused(404, "no_such_pool")
    site.pool("none")
    site.get("/pools/none/shares", workspace="elsewhere").refused(404, "no_such_pool")


def test_shares_are_not_paged(site: Site) -> None:
    site.pool()
    assert site.get("/pools/gpus/shares", limit=1).malformed() == {"limit": "is not a field here"}
