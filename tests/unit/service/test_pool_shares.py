"""Fair shares as a service: computed by the clock and by decisions, stored beside the accounts, and read by the API."""

from __future__ import annotations

from typing import Any

import pytest

from app.bootstrap import Services, make_services
from app.domain.clock import ManualClock
from app.domain.errors import NotFound
from app.domain.models import Request
from app.domain.pool_setting_models import AccountSettings, PoolSettings
from app.domain.pool_shares import ShareAccount
from app.domain.specs import GroupSpec, PolicySpec, PoolSpec, PoolUpdate, RequestSpec
from app.settings import Settings
from app.store.connection import RedisClient
from app.store.keys import key

W = "team"
FAIR: dict[str, Any] = {"discipline": "fair_share", "starvation_timeout_s": 10, "backoff_s": 0, "grace_s": 0}


class PoolSharesWorld:
    """A workspace with one pool of 8 gpu and two policies, by the clock of the test."""

    def __init__(self, client: RedisClient) -> None:
        self.client, self.clock = client, ManualClock()
        self.here: Services = make_services(client, Settings(), self.clock)
        self.here.pools.create(W, PoolSpec(name="p", capacity={"gpu": 8}, settings=PoolSettings(**FAIR)))
        for name in ("a", "b"):
            self.here.pools.set_policy(W, "p", name, PolicySpec())

    def submit(self, component: str, gpu: int, **more: Any) -> Request:
        """Submit a request without a lease and without a queue TTL."""
        ask = {"component": component, "resources": {"gpu": gpu}, "lease_s": None, "queue_ttl_s": None, **more}
        return self.here.requests.submit(W, RequestSpec.model_validate(ask))

    def status(self, *requests: Request) -> list[str]:
        """Return the states of the requests."""
        return [str(self.here.requests.get(W, request.id).status) for request in requests]

    def nodes(self) -> dict[str, ShareAccount]:
        """Return the shares of the pool, by name."""
        return {node.name: node for node in self.here.pool_shares.get(W, "p")}

    def settle(self, **changes: Any) -> None:
        """Change settings of the pool."""
        self.here.pools.update(W, "p", PoolUpdate(settings=PoolSettings(**changes)))

    def status_fields(self, component: str) -> dict[str, str]:
        """Return the stored shares of a policy."""
        fields = self.client.hgetall(key("policy", W, "p", f"orchestrator/{component}"))
        texts = {str(name): str(text) for name, text in fields.items()}
        return {
            name: text for name, text in texts.items() if name.startswith(("fair_share:", "demand_met:", "status", "below"))
        }


@pytest.fixture
def world(client: RedisClient) -> PoolSharesWorld:
    return PoolSharesWorld(client)


def test_by_the_clock_only_pools_of_fair_shares_where_something_goes_on_are_looked_at(world: PoolSharesWorld) -> None:
    world.here.pools.create("plain", PoolSpec(name="p", capacity={"gpu": 1}))
    world.here.pools.set_policy("plain", "p", "t", PolicySpec())
    for _ in range(2):
        world.here.requests.submit("plain", RequestSpec(component="t", resources={"gpu": 1}))
    world.client.set(key("nudge", "plain"), "pending")
    assert world.here.periodic_jobs.update_fair_shares() == {W: "done", "plain": "idle"}, "one is new, and so it is looked at"
    assert world.client.get(key("nudge", "plain")) == "pending", "the nudge there is still pending"
    assert world.here.periodic_jobs.update_fair_shares()[W] == "idle"
    world.submit("a", 8)
    assert world.here.periodic_jobs.update_fair_shares()[W] == "idle"
    world.submit("b", 1)
    assert world.here.periodic_jobs.update_fair_shares()[W] == "done"


def test_a_starving_policy_gets_its_part_from_the_newest(world: PoolSharesWorld) -> None:
    allocations = [world.submit("a", 2) for _ in range(4)]
    waits = [world.submit("b", 2) for _ in range(3)]
    world.here.periodic_jobs.update_fair_shares()
    assert world.status_fields("b") == {"fair_share:gpu": str(10**12 // 2), "below_ms": str(world.clock.now_ms())}
    assert world.nodes()["b"].below_since_ms == world.clock.now_ms()
    world.clock.advance(10)
    world.here.periodic_jobs.update_fair_shares()
    assert world.status(*allocations) == ["allocated"] * 4, "it has waited for so long, and no longer"
    world.clock.advance(1)
    world.here.periodic_jobs.update_fair_shares()
    assert (world.status(*allocations), world.status(*waits)) == (
        ["allocated", "allocated", "queued", "queued"],
        ["allocated", "allocated", "queued"],
    )
    assert [world.here.requests.get(W, request.id).preempted_by for request in allocations[2:]] == [waits[1].id, waits[0].id]
    reason = world.here.requests.get(W, allocations[3].id).reason
    assert reason is not None
    assert reason.code == "starvation"
    world.clock.advance(1000)
    world.here.periodic_jobs.update_fair_shares()
    assert world.status(*allocations) == ["allocated", "allocated", "queued", "queued"]
    assert world.status_fields("b") == {"fair_share:gpu": str(10**12 // 2)}


def test_starvation_begins_anew_after_an_empty_queue(world: PoolSharesWorld) -> None:
    world.submit("a", 8)
    first = world.submit("b", 2)
    world.here.periodic_jobs.update_fair_shares()
    assert "below_ms" in world.status_fields("b")
    world.here.requests.cancel(W, first.id)
    world.here.periodic_jobs.update_fair_shares()
    assert world.status_fields("b") == {}
    world.clock.advance(1000)
    again = world.submit("b", 2)
    world.here.periodic_jobs.update_fair_shares()
    assert world.status(again) == ["queued"]
    assert world.status_fields("b")["below_ms"] == str(world.clock.now_ms())


def test_a_switch_of_the_discipline_reorders_and_preempts_nothing(world: PoolSharesWorld) -> None:
    world.settle(discipline="reserved")
    allocations = [world.submit("a", 4, preemption_class=1) for _ in range(2)]
    waits = [world.submit("b", 4, preemption_class=2), world.submit("a", 4, preemption_class=3), world.submit("b", 2)]
    world.clock.advance(3600)
    for discipline in ("fair_share", "reserved", "fair_share"):
        world.settle(discipline=discipline)
        assert world.status(*allocations, *waits) == ["allocated"] * 2 + ["queued"] * 3
        if discipline == "fair_share":
            world.here.periodic_jobs.update_fair_shares()
            assert world.status(*allocations) == ["allocated"] * 2
    rows, _ = world.here.queries.list_pool_requests(W, "p", "queued", None, 10)
    assert [row.request.id for row in rows] == [waits[2].id, waits[0].id, waits[1].id], (
        "b has least, and there the class counts"
    )
    assert not world.here.audit.run(W)


def test_what_is_told_of_a_tree(world: PoolSharesWorld) -> None:
    world.here.pools.set_group(W, "p", "lab", GroupSpec(reserved={"gpu": 4}, mode="fifo", weight=2))
    world.here.pools.set_policy(W, "p", "c", PolicySpec(group="lab", limit={"gpu": 6}))
    first, second = world.submit("a", 2), world.submit("a", 4)
    asks = world.submit("c", 4)
    world.here.periodic_jobs.update_fair_shares()
    nodes = world.nodes()
    assert list(nodes) == ["p", "lab", "c", "a", "b"]
    assert [(node.kind, node.parent, node.mode) for node in nodes.values()] == [
        ("pool", None, "fair_share"), ("group", None, "fifo"), ("policy", "lab", None), ("policy", None, None),
        ("policy", None, None),
    ]  # fmt: skip
    c, a = nodes["c"], nodes["a"]
    assert (c.demand, c.usage, c.fair_share, c.limit_share) == ({"gpu": 4}, {"gpu": 0}, {"gpu": 0.5}, {"gpu": 0.75})
    assert (nodes["lab"].guarantee_share, c.guarantee_share) == ({"gpu": 0.5}, {"gpu": 0.0})
    assert (a.usage_share, a.fair_share, a.satisfaction) == ({"gpu": 0.75}, {"gpu": 0.5}, 1.5)
    assert (a.non_preemptible, a.aggressively_preemptible, a.preemptible) == ((first.id,), (second.id,), ())
    assert (nodes["b"].satisfaction, nodes["lab"].satisfaction, nodes["p"].satisfaction) == (None, 0, 0)
    assert c.below_since_ms == nodes["lab"].below_since_ms == world.clock.now_ms()
    assert world.status(asks) == ["queued"]
    with pytest.raises(NotFound):
        world.here.pool_shares.get(W, "nowhere")


def test_other_disciplines_have_shares_and_no_starving_account(world: PoolSharesWorld) -> None:
    world.settle(discipline="reserved")
    world.submit("a", 8)
    world.submit("b", 8)
    world.clock.advance(1000)
    b = world.nodes()["b"]
    assert (b.fair_share, b.status, b.below_since_ms) == ({"gpu": 0.5}, "non_starving", None)


def test_a_policy_may_be_more_patient_and_never_less(world: PoolSharesWorld) -> None:
    world.here.pools.set_policy(W, "p", "b", PolicySpec(settings=AccountSettings(starvation_timeout_s=50)))
    world.here.pools.set_policy(W, "p", "c", PolicySpec(settings=AccountSettings(starvation_timeout_s=1)))
    world.submit("a", 8)
    waits = [world.submit("b", 2), world.submit("c", 2)]
    world.here.periodic_jobs.update_fair_shares()
    world.clock.advance(9)
    world.here.periodic_jobs.update_fair_shares()
    assert [world.nodes()[name].status for name in "bc"] == ["non_starving", "non_starving"]
    world.clock.advance(5)
    world.here.periodic_jobs.update_fair_shares()
    assert [world.nodes()[name].status for name in "bc"] == ["non_starving", "starving"]
    world.clock.advance(40)
    world.here.periodic_jobs.update_fair_shares()
    assert world.nodes()["b"].status == "starving"
    assert world.status(*waits) == ["queued", "queued"], "as there is nothing but one large allocation, partly beyond its share"
