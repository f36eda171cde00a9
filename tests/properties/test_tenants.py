"""Instances of a template: no name and no request of one changes the quota of another, the labels or the memory."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.domain.ledger_limits import LedgerLimits
from app.service.audit import Audit
from app.store.audit import AuditStore
from app.store.ledger import Ledger
from tests.support.fake_redis import new_fake
from tests.support.in_process_api import Site
from tests.support.servers import Servers
from tests.support.world import World

TENANTS, TEMPLATE_MAX, IDLE_S, CROWD = 10_000, 300, 60, 250
LIMIT, MOST = 2, 3

odd_names = st.from_regex(r"[A-Za-z0-9_.:*{}|/ -]{0,66}", fullmatch=True)
names = st.one_of(
    st.sampled_from(("user-a", "user-b", "user-A", "user-", "user-vip", "user-.", "user-..", "User-a", "user-a ", "user-a\n")),
    st.from_regex(r"user-[A-Za-z0-9_.-]{0,57}", fullmatch=True),
    st.builds("user-{}".format, odd_names),
    odd_names,
)
units = st.one_of(st.integers(1, 3), st.sampled_from((0, -1, -(2**53), 2**53 - 1, 2**53, 2**63, 10**30, 1.5, "1", None, True)))
acts = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), names, units, st.booleans()),
        st.tuples(st.just("release"), st.integers(0, 9)),
        st.tuples(st.just("pass_time"), st.sampled_from((1, IDLE_S, 3 * IDLE_S))),
    ),
    min_size=3,
    max_size=20,
)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(acts)
def test_no_name_and_no_ask_of_a_tenant_changes_another(steps: list[tuple[Any, ...]]) -> None:
    site = Site(new_fake())
    site.pool(gpu=6, settings={"template_max": MOST, "template_idle_s": IDLE_S})
    site.policy("user-*", limit={"gpu": LIMIT})
    site.policy("user-vip", limit={"gpu": LIMIT + 1}, reserved={"gpu": 1}, priority=5)
    declared, live = site.get("/declaration").body, list[dict[str, Any]]()
    for act, *args in steps:
        if act == "submit":
            live += _submit(site, *args)
        elif act == "release" and live:
            held = live.pop(args[0] % len(live))
            site.post(f"/requests/{held['id']}/drop", {})
        elif act == "pass_time":
            site.clock.advance(args[0])
            site.services.cleanup.run("default")
        _check(site, declared)
    assert Audit(Ledger(site.client, site.clock), AuditStore(site.client, site.clock)).run("default") == []
    site.services.long_polls.close()


def _submit(site: Site, name: str, gpu: Any, repeats: bool) -> list[dict[str, Any]]:
    """Submit a request, perhaps twice with one key. Return it if it is granted or queued."""
    before = site.get("/pools/gpus/policies").body["items"]
    body = {"component": name, "resources": {"gpu": gpu}, "lease_s": None, "queue_ttl_s": None}
    headers = {"Idempotency-Key": "again"} if repeats else {}
    answer = site.post("/requests", body, headers=headers)
    assert answer.status in (201, 202, 200, 400, 409, 422, 429), answer
    accepted = answer.status < 300 and answer.body["status"] in ("allocated", "queued")
    if repeats and answer.status < 300:
        assert site.post("/requests", body, headers=headers).body["id"] == answer.body["id"]
    if not accepted:
        assert site.get("/pools/gpus/policies").body["items"] == before, "a refused request leaves nothing behind"
        return []
    assert re.fullmatch(r"user-[A-Za-z0-9_.-]{0,58}", name)
    assert type(gpu) is int
    return [answer.body]


def _check(site: Site, declared: Any) -> None:
    assert site.get("/declaration").body == declared
    rows = {row["component"]: row for row in site.get("/pools/gpus/policies").body["items"]}
    instances = {name: row for name, row in rows.items() if row["template"]}
    assert len(instances) == rows["user-*"]["policies"] <= MOST
    held: dict[str, int] = {}
    for request in site.get("/requests", status="allocated", limit=100).body["items"]:
        held[request["component"]] = held.get(request["component"], 0) + request["resources"]["gpu"]
    for name, row in instances.items():
        assert (row["limit"], row["reserved"], row["priority"]) == ({"gpu": LIMIT}, {}, 0)
        assert row["used"]["gpu"] == held.get(name, 0) <= LIMIT
    labels = set(re.findall(r'component="([^"]*)"', site.get("/metrics", root=True).body))
    assert labels == {"orchestrator/user-*", "orchestrator/user-vip"}


@pytest.mark.slow
def test_the_memory_of_ten_thousand_tenants_in_turn_is_flat(servers: Servers) -> None:
    world = World(servers.client("embedded"))
    world.ledger = Ledger(world.client, world.clock, LedgerLimits(retention_s=IDLE_S, events_kept=1000))
    world.pool(gpu=100, settings={"template_max": TEMPLATE_MAX, "template_idle_s": IDLE_S, "discipline": "fair_share"})
    world.policy("user-*", limit={"gpu": 1})
    sizes: list[tuple[int, int]] = []
    for first in range(0, TENANTS, CROWD):
        crowd = [world.request_spec(f"user-{number}", gpu=1) for number in range(first, first + CROWD)]
        for start in range(0, CROWD, 50):
            answers = world.submit_all(crowd[start : start + 50])
            world.ledger.release_all(world.workspace, [(answer.id, answer.fence) for answer in answers])
        template = world.get_pool().policies["orchestrator/user-*"]
        assert template.policies == CROWD
        world.clock.advance(2 * IDLE_S)
        while world.ledger.clean_up(world.workspace).idle_policies:
            pass
        sizes.append((int(world.client.dbsize()), int(world.client.info("memory")["used_memory"])))
    assert set(world.get_pool().policies) == {"orchestrator/user-*"}
    early, late = sizes[len(sizes) // 5], sizes[-1]
    assert late[0] <= early[0]
    assert late[1] < early[1] * 1.1
