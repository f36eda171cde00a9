"""The quotas of a whole declaration: each breach by its code, its sentence and its pool; and a valid declaration."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.declaration import Declaration
from app.domain.errors import RuleViolation
from app.domain.quota_validation import validate_quotas


def judged(groups: dict[str, dict[str, Any]], policies: dict[str, dict[str, Any]], **capacity: int) -> tuple[str, str] | None:
    """Return the code and the sentence with which a pool with these accounts is refused, or None."""
    pool = {
        "name": "p",
        "capacity": capacity,
        "groups": [{"name": name, **numbers} for name, numbers in groups.items()],
        "policies": [{"component": name, **numbers} for name, numbers in policies.items()],
    }
    try:
        validate_quotas(Declaration.model_validate({"pools": [{"name": "first", "capacity": {"gpu": 1}}, pool]}))
    except RuleViolation as refused:
        return refused.code, str(refused)
    return None


def chain(length: int) -> dict[str, dict[str, Any]]:
    """Return a chain of nested groups."""
    return {f"g{index}": {"parent": f"g{index - 1}"} if index else {} for index in range(length)}


NO_TPU = "the pool has no tpu; a policy or a group can only have keys of its pool"
BREACHES: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({}, {"a": {"reserved": {"tpu": 1}}}, "unknown_key", NO_TPU),
    ({"g": {"limit": {"tpu": 0}}}, {}, "unknown_key", NO_TPU),
    (
        {},
        {"a": {"reserved": {"gpu": 3}, "limit": {"gpu": 2}}},
        "reserved_beyond_limit",
        "policy orchestrator/a reserves 3 of gpu, more than its limit of 2",
    ),
    ({"g": {"reserved": {"gpu": 9}}}, {}, "reserved_beyond_limit", "group g reserves 9 of gpu, more than its limit of 8"),
    ({}, {"a": {"limit": {"gpu": 9}}}, "limit_beyond_capacity", "policy orchestrator/a limits gpu to 9; the pool has 8"),
    (
        {"g": {"reserved": {"gpu": 5}}},
        {"a": {"reserved": {"gpu": 4}}},
        "overpromised",
        "the reserved shares in the pool add up to 9 of gpu; it has 8 to give",
    ),
    (
        {"g": {"reserved": {"gpu": 4}}, "h": {"parent": "g", "reserved": {"gpu": 2}}},
        {"a": {"group": "g", "reserved": {"gpu": 3}}},
        "overpromised",
        "the reserved shares in group g add up to 5 of gpu; it has 4 to give",
    ),
    (
        {"g": {}},
        {"a": {"group": "g", "reserved": {"gpu": 1}}},
        "overpromised",
        "the reserved shares in group g add up to 1 of gpu; it has 0 to give",
    ),
    (
        {"g": {"settings": {"non_preemptible_usage_threshold": {"tpu": 3}}}},
        {},
        "unknown_threshold_key",
        "non_preemptible_usage_threshold of group g has 3 of tpu; the pool has no tpu",
    ),
    (
        {},
        {"a": {"settings": {"non_preemptible_usage_threshold": {"gpu": 1, "tpu": 0}}}},
        "unknown_threshold_key",
        "non_preemptible_usage_threshold of policy orchestrator/a has 0 of tpu; the pool has no tpu",
    ),
    ({}, {"a": {"group": "g"}}, "no_such_group", "there is no group g"),
    ({"g": {"parent": "h"}}, {}, "no_such_group", "there is no group h"),
    ({"g": {"parent": "g"}}, {}, "circle", "group g would be above itself"),
    ({"g": {"parent": "h"}, "h": {"parent": "g"}}, {}, "circle", "group g would be above itself"),
    (chain(9), {}, "too_deep", "groups may be nested 8 deep"),
]


@pytest.mark.parametrize(
    ("groups", "policies", "code", "sentence"), BREACHES, ids=[f"{index}-{b[2]}" for index, b in enumerate(BREACHES)]
)
def test_a_breach_is_told_with_its_pool(groups: dict[str, Any], policies: dict[str, Any], code: str, sentence: str) -> None:
    assert judged(groups, policies, gpu=8) == (code, f"pool p: {sentence}")


@pytest.mark.parametrize(
    ("groups", "policies"),
    [
        ({}, {}),
        (chain(8), {"a": {"group": "g7"}}),
        (
            {"g": {"reserved": {"gpu": 8}}},
            {"a": {"group": "g", "reserved": {"gpu": 5}}, "b": {"group": "g", "reserved": {"gpu": 3}}},
        ),
        ({"h": {"parent": "g"}, "g": {}}, {"a": {"group": "h", "reserved": {"gpu": 0}}}),
        ({}, {"a": {"limit": {"gpu": 0}}, "b": {"reserved": {"gpu": 8}, "limit": {"gpu": 8}}}),
    ],
)
def test_what_can_be_kept_is_not_refused(groups: dict[str, Any], policies: dict[str, Any]) -> None:
    assert judged(groups, policies, gpu=8) is None


def test_a_pool_protects_use_of_keys_it_has() -> None:
    def pool(**protected: int) -> Declaration:
        settings = {"non_preemptible_usage_threshold": protected}
        return Declaration.model_validate({"pools": [{"name": "p", "capacity": {"gpu": 8}, "settings": settings}]})

    validate_quotas(pool(gpu=9))
    with pytest.raises(RuleViolation) as error:
        validate_quotas(pool(gpu=9, tpu=1))
    assert (error.value.code, str(error.value)) == (
        "unknown_threshold_key",
        "pool p: non_preemptible_usage_threshold of the pool has 1 of tpu; the pool has no tpu",
    )


def test_a_chain_of_thousands_is_refused_at_once() -> None:
    assert judged(chain(20_000), {}, gpu=1) == ("too_deep", "pool p: groups may be nested 8 deep")
    circle = chain(20_000) | {"g0": {"parent": "g19999"}}
    assert (judged(circle, {}, gpu=1) or ("",))[0] == "circle"


@pytest.mark.parametrize(
    ("pool", "field"),
    [
        ({"groups": [{"name": "g"}, {"name": "h", "parent": "x"}]}, "groups.1.parent"),
        ({"policies": [{"component": "c", "group": "x"}]}, "policies.0.group"),
        ({"groups": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]}, "groups.0.parent"),
        ({"settings": {"non_preemptible_usage_threshold": {"tpu": 1}}}, "settings.non_preemptible_usage_threshold"),
        ({"policies": [{"component": "c", "reserved": {"tpu": 1}}]}, "policies.0.reserved.tpu"),
        ({"policies": [{"component": "c", "limit": {"tpu": 1}}]}, "policies.0.limit.tpu"),
        ({"policies": [{"component": "c", "reserved": {"gpu": 9}}]}, "policies.0.reserved.gpu"),
        ({"groups": [{"name": "g", "limit": {"gpu": 9}}]}, "groups.0.limit.gpu"),
        ({"policies": [{"component": name, "reserved": {"gpu": 5}} for name in "cd"]}, "capacity.gpu"),
        (
            {"groups": [{"name": "g"}, {"name": "h"}], "policies": [{"component": "c", "group": "h", "reserved": {"gpu": 1}}]},
            "groups.1.reserved.gpu",
        ),
        (
            {"policies": [{"component": "c", "settings": {"non_preemptible_usage_threshold": {"tpu": 1}}}]},
            "policies.0.settings.non_preemptible_usage_threshold",
        ),
    ],
)
def test_a_breach_names_its_field(pool: dict[str, Any], field: str) -> None:
    first, second = {"name": "first", "capacity": {"gpu": 1}}, {"name": "p", "capacity": {"gpu": 8}, **pool}
    with pytest.raises(RuleViolation) as refused:
        validate_quotas(Declaration.model_validate({"pools": [first, second]}))
    assert refused.value.field == f"pools.1.{field}"
