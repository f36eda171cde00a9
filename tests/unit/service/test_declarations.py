"""Declarative pools as a service: files are read strictly, and plans are what apply does, whatever others do meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.declaration import MAX_POOLS, Declaration
from app.domain.errors import Conflict, RuleViolation
from app.service.declarations import ATTEMPTS, MAX_CHANGES, Declarations
from app.service.pools_file import read, write
from app.store.workspaces import WorkspaceRegistry
from tests.support.paths import ROOT
from tests.support.world import World

SAMPLE = ROOT / "config" / "pools.yaml"


@pytest.fixture
def declaring(world: World) -> Declarations:
    """Return the service of declarations on the world's ledger."""
    return world.declarations


def declaration(*pools: dict[str, Any]) -> Declaration:
    """Return a declaration of these pools."""
    return Declaration.model_validate({"pools": list(pools)})


P: dict[str, Any] = {"name": "p", "capacity": {"gpu": 8}, "policies": [{"component": "t", "reserved": {"gpu": 4}}]}
Q: dict[str, Any] = {"name": "q", "capacity": {"gpu": 2}}


def test_the_sample_can_be_played_with_at_once(world: World, declaring: Declarations) -> None:
    sample = read(SAMPLE.read_text(encoding="utf-8"))
    assert declaring.plan("test", sample).summary == "15 to create, 0 to change, 0 to delete"
    assert world.state() == {}, "a plan changes nothing"
    declaring.apply("test", sample)
    allocation = world.submit("research", gpu=6)
    waits = world.submit("vision", gpu=4)
    assert world.status(allocation, waits) == ["allocated", "queued"]
    world.release(allocation)
    seats = [world.submit("classroom", matlab=1) for _ in range(2)]
    assert world.status(waits, *seats) == ["allocated", "allocated", "queued"]
    assert declaring.apply("test", sample).summary == "nothing to change"


def test_what_is_exported_and_applied_changes_nothing(world: World, declaring: Declarations) -> None:
    world.pool(settings={"queueing": "strict", "patience_s": None}, gpu=8, tpu=1)
    world.group("h", reserved={"gpu": 0}, weight=3, mode="fifo", settings={"fair_share_tolerance": 0.000001})
    world.group("g", parent="h", limit={"gpu": 4})
    world.policy("step_operator/a", group="g", priority=3)
    world.policy("b", settings={"non_preemptible_usage_threshold": {"gpu": 0, "tpu": 2}, "aggressive_starvation": False})
    world.pool("q", gpu=1, settings={"discipline": "fair_share", "preemption_threshold": 0.5, "over_limit": "keep"})
    world.submit("step_operator/a", gpu=2)
    before = world.state()
    exported = write(declaring.export("test"))
    assert declaring.apply("test", read(exported), prune=True).changes == ()
    assert world.state() == before
    assert read(exported) == declaring.export("test")


def test_the_plan_that_was_carried_out_is_answered_and_twice_is_once(world: World, declaring: Declarations) -> None:
    plan = declaring.plan("test", declaration(P, Q))
    assert declaring.apply("test", declaration(P, Q)) == plan
    before = world.state()
    assert declaring.apply("test", declaration(P, Q)).summary == "nothing to change"
    assert world.state() == before


def test_pools_not_listed_are_left_alone_unless_pruned(world: World, declaring: Declarations) -> None:
    declaring.apply("test", declaration(P, Q))
    assert declaring.apply("test", declaration(P)).changes == ()
    assert declaring.apply("test", declaration(P), prune=True).summary == "0 to create, 0 to change, 1 to delete"
    assert world.pools() == ["p"]


def test_what_is_against_the_rules_is_neither_planned_nor_done(world: World, declaring: Declarations) -> None:
    wrong = declaration(Q, P | {"capacity": {"gpu": 3}})
    for call in (declaring.plan, declaring.apply):
        with pytest.raises(RuleViolation, match="pool p: policy orchestrator/t reserves 4 of gpu, more than its limit of 3"):
            call("test", wrong)
    assert world.state() == {}


def test_a_concurrent_change_is_planned_for(world: World, declaring: Declarations, monkeypatch: pytest.MonkeyPatch) -> None:
    declaring.apply("test", declaration(P))
    declare = world.ledger.declare
    meddled: list[bool] = []

    def meddle(*args: Any) -> bool:
        if not meddled:
            world.policy("stranger")
            meddled.append(True)
        return declare(*args)

    monkeypatch.setattr(world.ledger, "declare", meddle)
    plan = declaring.apply("test", declaration(P | {"capacity": {"gpu": 9}}))
    assert [(change.action, change.name) for change in plan.changes] == [("update", "p"), ("delete", "orchestrator/stranger")]
    assert list(world.get_pool().policies) == ["orchestrator/t"]


def test_a_declaration_overtaken_every_time_is_refused(
    world: World, declaring: Declarations, monkeypatch: pytest.MonkeyPatch
) -> None:
    declaring.apply("test", declaration(P))
    declare, tried = world.ledger.declare, []

    def meddle(*args: Any) -> bool:
        tried.append(True)
        world.update_pool(gpu=10 + len(tried))
        return declare(*args)

    monkeypatch.setattr(world.ledger, "declare", meddle)
    with pytest.raises(Conflict) as refused:
        declaring.apply("test", declaration(P | {"capacity": {"gpu": 9}}))
    assert (refused.value.code, len(tried), world.get_pool().capacity) == (
        "changed_meanwhile",
        ATTEMPTS,
        {"gpu": 10 + ATTEMPTS},
    )


def test_a_pool_that_goes_while_it_is_looked_at_is_not_there(
    world: World, declaring: Declarations, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.pool("q", gpu=2)
    monkeypatch.setattr(world.ledger, "list_pools", lambda _: ["gone", "q"])
    assert declaring.export("test") == declaration(Q)


def test_too_much_at_once_is_refused(world: World, declaring: Declarations) -> None:
    crowd = P | {"policies": [{"component": f"c{number}"} for number in range(MAX_CHANGES)]}
    with pytest.raises(RuleViolation) as refused:
        declaring.apply("test", declaration(crowd))
    assert (refused.value.code, world.state()) == ("too_many_changes", {})
    just = declaration(crowd | {"policies": crowd["policies"][1:]})
    declaring.apply("test", just)
    assert declaring.export("test").pools[0].policies[0].component == "c1"
    declaring.apply("test", Declaration(), prune=True)
    assert world.pools() == []


def test_a_workspace_that_is_applied_to_is_known(world: World, declaring: Declarations) -> None:
    registry = WorkspaceRegistry(world.client)
    declaring.plan("test", declaration(P))
    assert registry.list_names() == []
    declaring.apply("test", declaration(P))
    assert registry.list_names() == ["test"]


@pytest.mark.parametrize("bad", ["", "a b", "a:b", "a{b}"])
def test_no_bad_name_reaches_the_store(declaring: Declarations, bad: str) -> None:
    for call in (
        lambda: declaring.export(bad),
        lambda: declaring.plan(bad, declaration(P)),
        lambda: declaring.apply(bad, declaration()),
    ):
        with pytest.raises(ValueError, match="is no name"):
            call()


def test_a_workspace_of_more_pools_than_a_declaration_may_have_is_exported(
    world: World, declaring: Declarations, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.pool("q", gpu=2)
    pool = world.ledger.get_pool("test", "q")
    monkeypatch.setattr(declaring, "_current_pools", lambda *_: {f"q{number}": pool for number in range(MAX_POOLS + 1)})
    assert len(declaring.export("test").pools) == MAX_POOLS + 1
