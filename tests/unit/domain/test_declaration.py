"""Declarations: a malformed field is refused, an absent one has its default, and an exported pool becomes the same pool."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from app.domain.declaration import Declaration, PolicyDeclaration, PoolDeclaration, export_pool
from app.domain.models import Group, Policy, Pool, Setting
from app.domain.pool_setting_models import PoolSettings
from app.domain.validation_errors import field_errors

POOL = {"name": "p", "capacity": {"gpu": 8}}


def faults(**pool: Any) -> list[tuple[str, str]]:
    """Return the faults of a declaration of one pool."""
    with pytest.raises(ValidationError) as error:
        Declaration.model_validate({"pools": [POOL | pool]})
    return field_errors(error.value)


@pytest.mark.parametrize(
    ("pool", "field", "reason"),
    [
        ({"groups": [{"name": "g"}, {"name": "h"}, {"name": "g"}]}, "groups", "must list every group once; g is there twice"),
        (
            {"policies": [{"component": "c"}, {"component": "c", "component_type": "orchestrator"}]},
            "policies",
            "must list every policy once; orchestrator/c is there twice",
        ),
        ({"polices": []}, "polices", "is not a field here"),
        ({"groups": [{"name": "g", "priority": 1}]}, "groups.0.priority", "is not a field here"),
        ({"groups": [{"weight": 1}]}, "groups.0.name", "is required"),
        ({"policies": [{"component": "c", "weight": "2"}]}, "policies.0.weight", "must be a whole number"),
        ({"policies": [{"component": "c", "priority": 10_000}]}, "policies.0.priority", "must be at most 9999"),
        ({"policies": [{"component": "c", "reserved": {"gpu": -1}}]}, "policies.0.reserved.gpu", "must be at least 0"),
        ({"capacity": {}}, "capacity", "must have at least 1 entry"),
        ({"settings": {"order": "any"}}, "settings.order", "must be 'share_first' or 'priority_first'"),
    ],
)
def test_what_is_malformed_is_named(pool: dict[str, Any], field: str, reason: str) -> None:
    assert faults(**pool) == [(f"pools.0.{field}", reason)]


def test_a_pool_is_listed_once() -> None:
    with pytest.raises(ValidationError) as error:
        Declaration.model_validate({"pools": [POOL, POOL]})
    assert field_errors(error.value) == [("pools", "must list every pool once; p is there twice")]


def test_one_name_under_two_types_is_two_policies() -> None:
    policies = [{"component": "c"}, {"component": "c", "component_type": "step_operator"}]
    names = [policy.name for policy in PoolDeclaration.model_validate(POOL | {"policies": policies}).policies]
    assert names == ["orchestrator/c", "step_operator/c"]


def test_what_is_not_said_is_a_default() -> None:
    pool = PoolDeclaration.model_validate(POOL | {"policies": [{"component": "c"}]})
    assert (pool.description, pool.settings, pool.groups) == ("", PoolSettings(), [])
    assert pool.policies == [PolicyDeclaration(component="c", component_type="orchestrator", priority=0, weight=1, group=None)]
    assert Declaration.model_validate({}).pools == []


def pool_record(**settings: Setting) -> Pool:
    """Return a pool with a group and a policy, as the ledger reads it."""
    group = Group("g", None, 2, {"gpu": 4}, {}, {"gpu": 1}, {}, {"preemption_threshold": 1}, mode="fifo")
    own: dict[str, Setting] = {"fair_share_tolerance": 0.5, "non_preemptible_usage_threshold": {"gpu": 1}}
    policy = Policy("step_operator/c", "g", 1, {"gpu": 1}, {"gpu": 0}, {}, {}, own, priority=7, queued=3, profile="training")
    unset: dict[str, Setting] = dict.fromkeys(PoolSettings.model_fields)
    return Pool(
        name="p",
        description="d",
        capacity={"tpu": 2, "gpu": 8},
        used={"gpu": 1},
        used_fixed={},
        on_hold={},
        settings=unset | settings,
        queue_length=3,
        active_count=1,
        groups={"g": group},
        policies={"step_operator/c": policy},
        holds=(),
        unfinished=False,
    )


def test_a_pool_as_a_file_would_say_it() -> None:
    declaration = export_pool(pool_record(queueing="strict", patience_s=300)).model_dump(exclude_defaults=True)
    assert declaration == {
        "name": "p",
        "description": "d",
        "capacity": {"gpu": 8, "tpu": 2},
        "settings": {"queueing": "strict"},
        "groups": [{"name": "g", "reserved": {"gpu": 4}, "weight": 2, "mode": "fifo", "settings": {"preemption_threshold": 1}}],
        "policies": [
            {
                "component": "c",
                "component_type": "step_operator",
                "priority": 7,
                "reserved": {"gpu": 1},
                "limit": {"gpu": 0},
                "group": "g",
                "profile": "training",
                "settings": {"fair_share_tolerance": 0.5, "non_preemptible_usage_threshold": {"gpu": 1}},
            }
        ],
    }
    assert list(declaration) == ["name", "description", "capacity", "settings", "groups", "policies"]


def test_a_setting_never_written_is_a_default_unless_it_may_be_null() -> None:
    settings = export_pool(pool_record()).settings
    assert (settings.discipline, settings.grace_s, settings.patience_s) == ("reserved", 30, None)
    assert settings.requeue_failed_checkpoint is True
    assert (settings.backoff_s, settings.over_limit, settings.fair_share_tolerance) == (None, None, 0.8)
    assert settings.non_preemptible_usage_threshold == {}
