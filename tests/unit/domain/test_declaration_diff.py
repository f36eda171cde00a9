"""The difference of declarations: its lines for people, and its steps for the ledger."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.declaration import Declaration, PoolDeclaration
from app.domain.declaration_diff import DeclarationChange, DeclarationPlan, plan_declaration

Said = dict[str, Any]


def a_pool(**fields: Any) -> Said:
    """Return a pool of 8 gpu and 2 tpu, with further fields."""
    return {"name": "p", "capacity": {"gpu": 8, "tpu": 2}} | fields


def plan(present: list[Said], fields: list[Said], *, prune: bool = False) -> DeclarationPlan:
    pools = [PoolDeclaration.model_validate(pool) for pool in present]
    return plan_declaration({pool.name: pool for pool in pools}, Declaration.model_validate({"pools": fields}), prune=prune)


def lines(before: Said, after: Said) -> list[str]:
    """Return the lines of one pool's plan."""
    return [line for change in plan([before], [after]).changes for line in change.lines]


def policy(**fields: Any) -> Said:
    return a_pool(policies=[{"component": "c", **fields}])


def own(**settings: Any) -> Said:
    return policy(settings=settings)


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (policy(reserved={"gpu": 4}), policy(reserved={"gpu": 2}), "reserved gpu: 4 -> 2"),
        (policy(), policy(reserved={"gpu": 2}), "reserved gpu: none -> 2"),
        (policy(limit={"gpu": 8}), policy(), "limit gpu: 8 -> as the pool"),
        (policy(), policy(limit={"gpu": 0}), "limit gpu: as the pool -> 0"),
        (policy(priority=1), policy(priority=10), "priority: 1 -> 10"),
        (policy(weight=3), policy(), "weight: 3 -> 1"),
        (a_pool(), a_pool(capacity={"gpu": 8}), "capacity tpu: 2 -> removed"),
        (a_pool(), a_pool(capacity={"gpu": 8, "tpu": 2, "npu": 1}), "capacity npu: none -> 1"),
        (a_pool(), a_pool(settings={"queueing": "strict"}), "setting queueing: best_effort -> strict"),
        (a_pool(settings={"patience_s": None}), a_pool(), "setting patience_s: none -> 300"),
        (a_pool(), a_pool(settings={"requeue_failed_checkpoint": False}), "setting requeue_failed_checkpoint: true -> false"),
        (a_pool(settings={"max_victims": 0}), a_pool(), "setting max_victims: 0 -> as the discipline"),
        (a_pool(), a_pool(settings={"near_completion_s": 60}), "setting near_completion_s: as the discipline -> 60"),
        (a_pool(), a_pool(settings={"value_per_class": 9}), "setting value_per_class: none -> 9"),
        (a_pool(), a_pool(settings={"backoff_s": 0}), "setting backoff_s: as the discipline -> 0"),
        (a_pool(settings={"over_limit": "keep"}), a_pool(), "setting over_limit: keep -> as the discipline"),
        (a_pool(), a_pool(settings={"discipline": "fair_share"}), "setting discipline: reserved -> fair_share"),
        (a_pool(), a_pool(settings={"fair_share_tolerance": 0.000001}), "setting fair_share_tolerance: 0.8 -> 0.000001"),
        (a_pool(), a_pool(settings={"preemption_threshold": 0.5}), "setting preemption_threshold: 1 -> 0.5"),
        (
            a_pool(),
            a_pool(settings={"non_preemptible_usage_threshold": {"tpu": 1, "gpu": 0}}),
            "setting non_preemptible_usage_threshold: none -> gpu=0,tpu=1",
        ),
        (own(starvation_timeout_s=30), own(starvation_timeout_s=60), "setting starvation_timeout_s: 30 -> 60"),
        (policy(), own(aggressive_starvation=False), "setting aggressive_starvation: inherited -> false"),
        (
            own(non_preemptible_usage_threshold={"gpu": 2}),
            policy(settings={"non_preemptible_usage_threshold": {}, "over_limit": None}),
            "setting non_preemptible_usage_threshold: gpu=2 -> inherited",
        ),
        (a_pool(groups=[{"name": "g"}]), a_pool(groups=[{"name": "g", "mode": "fifo"}]), "mode: fair_share -> fifo"),
        (policy(), policy(profile="training"), "profile: batch -> training"),
        (a_pool(), a_pool(description='the "big" ones\n'), 'description: none -> "the \\"big\\" ones\\n"'),
    ],
)
def test_a_line(before: Said, after: Said, line: str) -> None:
    assert lines(before, after) == [line]


def test_another_parent_is_a_line() -> None:
    before = a_pool(groups=[{"name": "g"}, {"name": "h"}], policies=[{"component": "c"}])
    after = a_pool(groups=[{"name": "g"}, {"name": "h", "parent": "g"}], policies=[{"component": "c", "group": "h"}])
    assert lines(before, after) == ["parent: none -> g", "group: none -> h"]


def test_lines_of_one_account_keep_their_order() -> None:
    before = policy(priority=1, reserved={"tpu": 1}, limit={"tpu": 1, "gpu": 4})
    after = policy(
        settings={"over_limit": "evict", "fair_share_tolerance": 1.0},
        profile="service",
        weight=2,
        reserved={"gpu": 1, "tpu": 2},
        limit={"gpu": 5, "tpu": 2},
    )
    assert lines(before, after) == [
        "priority: 1 -> 0",
        "reserved gpu: none -> 1",
        "reserved tpu: 1 -> 2",
        "limit gpu: 4 -> 5",
        "limit tpu: 1 -> 2",
        "weight: 1 -> 2",
        "profile: batch -> service",
        "setting fair_share_tolerance: inherited -> 1",
        "setting over_limit: inherited -> evict",
    ]


def test_a_plan_reads_from_the_top() -> None:
    before = a_pool(groups=[{"name": "old"}], policies=[{"component": "a", "group": "old", "priority": 1}, {"component": "b"}])
    after = a_pool(
        description="d",
        groups=[{"name": "new"}],
        policies=[{"component": "c", "limit": {"gpu": 1}}, {"component": "b", "weight": 2}],
    )
    present = [{"name": "z", "capacity": {"x": 1}, "policies": [{"component": "a"}]}, before]
    fresh = {"name": "q", "capacity": {"x": 1}, "groups": [{"name": "g"}]}
    changes = plan(present, [fresh, after], prune=True)
    assert changes.changes == (
        DeclarationChange("create", "pool", "q", "q", ("capacity x: 1",)),
        DeclarationChange("create", "group", "q", "g", ()),
        DeclarationChange("update", "pool", "p", "p", ('description: none -> "d"',)),
        DeclarationChange("create", "group", "p", "new", ()),
        DeclarationChange("delete", "group", "p", "old", ()),
        DeclarationChange("create", "policy", "p", "orchestrator/c", ("limit gpu: 1",)),
        DeclarationChange("update", "policy", "p", "orchestrator/b", ("weight: 1 -> 2",)),
        DeclarationChange("delete", "policy", "p", "orchestrator/a", ("priority: 1", "group: old")),
        DeclarationChange("delete", "pool", "z", "z", ("capacity x: 1", "with policy orchestrator/a")),
    )
    assert changes.summary == "4 to create, 2 to change, 3 to delete"
    assert [(step.name, step.change_count) for step in changes.steps] == [("q", 2), ("p", 6), ("z", 2)]


def test_what_is_so_already_is_no_change() -> None:
    before = a_pool(policies=[{"component": "a"}, {"component": "b", "reserved": {"gpu": 1, "tpu": 1}}])
    after = a_pool(policies=[{"component": "b", "reserved": {"tpu": 1, "gpu": 1}}, {"component": "a", "weight": 1}])
    changes = plan([before, {"name": "q", "capacity": {"x": 1}}], [after])
    assert (changes.changes, changes.steps, changes.summary) == ((), (), "nothing to change")


def test_an_explicit_nothing_is_a_change_for_it_keeps_the_key() -> None:
    assert lines(policy(reserved={"tpu": 0}), policy()) == ["reserved tpu: 0 -> none"]
