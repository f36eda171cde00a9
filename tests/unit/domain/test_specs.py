"""Specs of requests: valid forms with their defaults, and every kind of invalid input with its field and reason."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.domain import specs
from app.domain.amounts import MAX_KEYS
from app.domain.field_types import TEN_YEARS_S, SettingsModel, StrictModel
from app.domain.pool_setting_models import AccountSettings, GroupSettings, PoolSettings
from app.domain.queue_score import MAX_AMOUNT
from app.domain.specs import (
    ComponentLimitSettings,
    GroupSpec,
    PolicySpec,
    PoolSpec,
    PoolUpdate,
    RequestSpec,
    ResourceSettings,
    WorkspaceSettings,
    body_digest,
)
from app.domain.validation_errors import MAX_COUNTED_ERRORS, MAX_FIELD_ERRORS, field_errors

KINDS: list[type[StrictModel]] = [RequestSpec, ResourceSettings, ComponentLimitSettings, PoolSpec, PoolUpdate, PoolSettings]
KINDS += [GroupSpec, GroupSettings, PolicySpec, AccountSettings, WorkspaceSettings]

WHOLE = "must be a whole number"
KEY = "must be 1 to 63 of a-z 0-9 _ . - and begin with a letter"
NAME = "must be 1 to 63 of A-Z a-z 0-9 _ . - and begin with a letter or digit"
LABEL = "must be 1 to 63 of A-Z a-z 0-9 _ . / - and begin with a letter or digit"
TITLE = "must be 1 to 100 characters, none of them invisible or a line break"
COMPONENT = "must be type/name, each 1 to 63 of A-Z a-z 0-9 _ . - and begin with a letter or digit"
MEMORY = "must be a number and one of KB KiB MB MiB GB GiB TB TiB PB PiB, such as 16GiB"


def a_request(**fields: Any) -> RequestSpec:
    return RequestSpec.model_validate({"component": "t", **fields})


def a_pool(**fields: Any) -> PoolSpec:
    return PoolSpec.model_validate({"name": "p", "capacity": {"gpu": 8}, **fields})


def faults(kind: type[StrictModel], body: Any) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(body)
    return field_errors(caught.value)


def keys(number: int) -> dict[str, int]:
    return {f"k{i}": 1 for i in range(number)}


# Valid specs


def test_a_request_with_its_defaults() -> None:
    assert a_request().model_dump() == {
        "component": "t",
        "component_type": "orchestrator",
        "name": None,
        "pools": None,
        "resources": {},
        "settings": {"gpu_count": None, "cpu_count": None, "memory": None, "pool_resources": {}},
        "preemptible": True,
        "preemption_class": 5,
        "checkpoint": "none",
        "checkpoint_minutes": None,
        "walltime_s": None,
        "retries": 3,
        "lease_s": 60,
        "queue_ttl_s": 600,
        "labels": {},
    }


def test_a_request_with_everything() -> None:
    body = {
        "component": "gpu-step-op",
        "component_type": "step_operator",
        "name": "été: " + "x" * 95,
        "pools": ["a-100", "h.100"],
        "resources": {"gpu": MAX_AMOUNT},
        "settings": {"gpu_count": 1, "cpu_count": 0.5, "memory": "1.5GiB", "pool_resources": {"licence.x": 1}},
        "preemptible": False,
        "preemption_class": 10,
        "checkpoint": "auto",
        "checkpoint_minutes": 1,
        "walltime_s": TEN_YEARS_S,
        "retries": -1,
        "lease_s": None,
        "queue_ttl_s": None,
        "labels": {"zenml.io/run": "été\n", "empty": ""},
    }
    assert a_request(**body).model_dump() == body
    assert RequestSpec.model_validate_json(json.dumps(body)).model_dump() == body


def test_what_a_request_asks_of_a_pool() -> None:
    spec = a_request(resources={"gpu": 1, "licence": 2}, settings={"gpu_count": 4, "cpu_count": 0.29})
    assert spec.amounts() == {"gpu": 4, "licence": 2, "mcpu": 290, "step_run": 1}
    assert a_request(settings={"cpu_count": 1.0005, "memory": "8GiB", "gpu_count": 0}).amounts() == {
        "mcpu": 1001,
        "memory_mb": 8590,
        "step_run": 1,
    }


def test_nothing_asked_is_one_step_run() -> None:
    assert a_request().amounts() == {"step_run": 1}


def test_the_most_keys_and_labels() -> None:
    assert len(a_request(resources=keys(MAX_KEYS)).amounts()) == MAX_KEYS + 1
    labels = {f"l{i:062}": "x" * 255 for i in range(32)}
    assert a_request(labels=labels).labels == labels
    assert a_pool(capacity=keys(MAX_KEYS)).capacity == keys(MAX_KEYS)


def test_a_pool_with_its_defaults() -> None:
    assert a_pool().model_dump() == {
        "name": "p",
        "description": "",
        "capacity": {"gpu": 8},
        "settings": {
            "discipline": "reserved",
            "order": "share_first",
            "queueing": "best_effort",
            "patience_s": 300,
            "grace_s": 30,
            "checkpoint_timeout_s": 600,
            "max_deferral_s": 300,
            "requeue_failed_checkpoint": True,
            "near_completion_s": None,
            "min_runtime_s": 0,
            "max_victims": None,
            "max_preemptions_per_minute": None,
            "backoff_s": None,
            "cost_key": "gpu",
            "value_per_class": None,
            "over_limit": None,
            "over_limit_after_s": 30,
            "fair_share_tolerance": 0.8,
            "starvation_timeout_s": 30,
            "aggressive_starvation": False,
            "aggressive_starvation_timeout_s": 120,
            "allow_aggressive_preemption": True,
            "aggressive_preemption_threshold": 0.2,
            "preemption_threshold": 1,
            "non_preemptible_usage_threshold": {},
            "template_max": 1000,
            "template_idle_s": 600,
        },
    }


def test_a_change_knows_what_was_given() -> None:
    change = PoolUpdate.model_validate({"capacity": {"gpu": 16, "tpu": 0}, "settings": {"patience_s": None}})
    assert change.description is None
    assert change.capacity == {"gpu": 16, "tpu": 0}
    assert change.settings.explicit_values() == {"patience_s": None}
    assert PoolUpdate().settings.explicit_values() == {}
    assert PoolUpdate.model_validate({"settings": {"order": "share_first"}}).settings.explicit_values() == {
        "order": "share_first"
    }


def test_settings_of_a_workspace() -> None:
    assert WorkspaceSettings().unmanaged == "reject"
    assert WorkspaceSettings().explicit_values() == {}
    assert WorkspaceSettings.model_validate({"unmanaged": "allow"}).explicit_values() == {"unmanaged": "allow"}


def test_a_group_with_its_defaults() -> None:
    plain: dict[str, Any] = {"parent": None, "reserved": {}, "limit": {}, "weight": 1, "mode": "fair_share"}
    assert GroupSpec().model_dump() == {**plain, "settings": dict.fromkeys(GroupSettings.model_fields)}


def test_a_policy_with_its_defaults() -> None:
    assert PolicySpec().model_dump() == {
        "priority": 0,
        "reserved": {},
        "limit": {},
        "weight": 1,
        "group": None,
        "profile": "batch",
        "settings": dict.fromkeys(AccountSettings.model_fields),
    }


@pytest.mark.parametrize("kind", [PolicySpec, GroupSpec])
def test_what_is_only_against_the_rules_is_well_formed(kind: type[PolicySpec | GroupSpec]) -> None:
    body = {"reserved": {"gpu": 3}, "limit": {"gpu": 2, "tpu": 0}}
    assert kind.model_validate(body).model_dump(include={"reserved", "limit"}) == body


# Invalid specs


class Where(NamedTuple):
    """A place for amounts, and the least there."""

    kind: type[StrictModel]
    path: str
    least: int

    def body(self, amounts: Any) -> dict[str, Any]:
        """Return a body with these amounts, and its other required fields."""
        needed = {RequestSpec: {"component": "t"}, PoolSpec: {"name": "p"}}.get(self.kind, {})
        for part in reversed(self.path.split(".")):
            amounts = {part: amounts}
        return {**needed, **amounts}


everywhere = pytest.mark.parametrize(
    "where",
    [
        Where(RequestSpec, "resources", least=1),
        Where(RequestSpec, "settings.pool_resources", least=1),
        Where(PoolSpec, "capacity", least=1),
        Where(PoolUpdate, "capacity", least=0),
        Where(GroupSpec, "reserved", least=0),
        Where(GroupSpec, "limit", least=0),
        Where(PolicySpec, "reserved", least=0),
        Where(PolicySpec, "limit", least=0),
    ],
    ids=lambda where: f"{where.kind.__name__}.{where.path}",
)


@everywhere
@pytest.mark.parametrize("amount", [1.5, 2.0, "1", True, False, None, [1], {}, float("nan"), float("inf")], ids=repr)
def test_an_amount_is_a_whole_number(where: Where, amount: Any) -> None:
    assert faults(where.kind, where.body({"gpu": amount})) == [(f"{where.path}.gpu", WHOLE)]


@everywhere
@pytest.mark.parametrize("amount", [MAX_AMOUNT + 1, 99999999999999999999, 10**5000], ids=["2^53", "20 digits", "5001 digits"])
def test_an_amount_can_be_counted(where: Where, amount: int) -> None:
    assert faults(where.kind, where.body({"gpu": amount})) == [(f"{where.path}.gpu", "must be at most 9007199254740991")]


@everywhere
def test_the_least_and_the_largest_amount(where: Where) -> None:
    for amount in (where.least, MAX_AMOUNT):
        where.kind.model_validate(where.body({"gpu": amount}))
    for amount in (where.least - 1, -MAX_AMOUNT, -(10**30)):
        assert faults(where.kind, where.body({"gpu": amount})) == [(f"{where.path}.gpu", f"must be at least {where.least}")]


@everywhere
@pytest.mark.parametrize("key", ["bad key", "GPU", "gpu\n", "", "a,b", "a=b", "{a}", "a" * 64, "é"])
def test_no_resource_key(where: Where, key: str) -> None:
    assert faults(where.kind, where.body({key: 1})) == [(f"{where.path}.{key}", KEY)]


@everywhere
def test_too_many_keys(where: Where) -> None:
    where.kind.model_validate(where.body(keys(MAX_KEYS)))
    assert faults(where.kind, where.body(keys(MAX_KEYS + 1))) == [(where.path, "must have at most 32 entries")]


@everywhere
@pytest.mark.parametrize("value", [[], ["gpu"], "gpu=1", 1, None, [["gpu", 1]]], ids=repr)
def test_amounts_are_an_object(where: Where, value: Any) -> None:
    assert faults(where.kind, where.body(value)) == [(where.path, "must be an object")]


REQUESTS: list[tuple[dict[str, Any], str, str]] = [
    ({"component": ""}, "component", NAME),
    ({"component": "no spaces {here}"}, "component", NAME),
    ({"component": "t\n"}, "component", NAME),
    ({"component": "a:b"}, "component", NAME),
    ({"component": "x" * 64}, "component", NAME),
    ({"component": 7}, "component", "must be a text"),
    ({"component": None}, "component", "must be a text"),
    ({"component": "\ud800"}, "component", "must be valid Unicode"),
    ({"component_type": "step/operator"}, "component_type", NAME),
    ({"component_type": None}, "component_type", "must be a text"),
    ({"colour": "red"}, "colour", "is not a field here"),
    ({"settings": {"gpus": 1}}, "settings.gpus", "is not a field here"),
    ({"settings": None}, "settings", "must be an object"),
    ({"settings": {"gpu_count": -1}}, "settings.gpu_count", "must be at least 0"),
    ({"settings": {"gpu_count": 1.0}}, "settings.gpu_count", WHOLE),
    ({"settings": {"gpu_count": "1"}}, "settings.gpu_count", WHOLE),
    ({"settings": {"gpu_count": True}}, "settings.gpu_count", WHOLE),
    ({"settings": {"gpu_count": MAX_AMOUNT + 1}}, "settings.gpu_count", "must be at most 9007199254740991"),
    ({"settings": {"cpu_count": -0.1}}, "settings.cpu_count", "must be at least 0"),
    ({"settings": {"cpu_count": "4"}}, "settings.cpu_count", "must be a number"),
    ({"settings": {"cpu_count": True}}, "settings.cpu_count", "must be a number"),
    ({"settings": {"cpu_count": 10**400}}, "settings.cpu_count", "must be a number"),
    ({"settings": {"cpu_count": 1e300}}, "settings.cpu_count", "must be at most 9007199254740"),
    ({"settings": {"cpu_count": float("nan")}}, "settings.cpu_count", "must be a finite number"),
    ({"settings": {"cpu_count": float("inf")}}, "settings.cpu_count", "must be a finite number"),
    ({"settings": {"memory": "16GX"}}, "settings.memory", MEMORY),
    ({"settings": {"memory": "16GiB\n"}}, "settings.memory", MEMORY),
    ({"settings": {"memory": 16}}, "settings.memory", "must be a text"),
    ({"settings": {"memory": "9" * 99 + "MB"}}, "settings.memory", "must have at most 64 characters"),
    ({"settings": {"memory": "9999999999PiB"}}, "settings.memory", "must be at most 9007199254740991 megabytes"),
    ({"preemptible": "true"}, "preemptible", "must be true or false"),
    ({"preemptible": 1}, "preemptible", "must be true or false"),
    ({"preemptible": None}, "preemptible", "must be true or false"),
    ({"preemption_class": 11}, "preemption_class", "must be at most 10"),
    ({"preemption_class": -1}, "preemption_class", "must be at least 0"),
    ({"preemption_class": True}, "preemption_class", WHOLE),
    ({"preemption_class": 5.0}, "preemption_class", WHOLE),
    ({"checkpoint": "always"}, "checkpoint", "must be 'none', 'manual' or 'auto'"),
    ({"checkpoint": None}, "checkpoint", "must be 'none', 'manual' or 'auto'"),
    ({"checkpoint_minutes": 0}, "checkpoint_minutes", "must be at least 1"),
    ({"checkpoint_minutes": 1.5}, "checkpoint_minutes", WHOLE),
    ({"checkpoint_minutes": TEN_YEARS_S // 60 + 1}, "checkpoint_minutes", "must be at most 5256000"),
    ({"walltime_s": 0}, "walltime_s", "must be at least 1"),
    ({"walltime_s": TEN_YEARS_S + 1}, "walltime_s", "must be at most 315360000"),
    ({"walltime_s": "60"}, "walltime_s", WHOLE),
    ({"retries": -2}, "retries", "must be at least -1"),
    ({"retries": 10**9}, "retries", "must be at most 1000000"),
    ({"retries": None}, "retries", WHOLE),
    ({"lease_s": 0}, "lease_s", "must be at least 1"),
    ({"lease_s": 0.5}, "lease_s", WHOLE),
    ({"lease_s": False}, "lease_s", WHOLE),
    ({"lease_s": MAX_AMOUNT}, "lease_s", "must be at most 315360000"),
    ({"queue_ttl_s": 0}, "queue_ttl_s", "must be at least 1"),
    ({"queue_ttl_s": -600}, "queue_ttl_s", "must be at least 1"),
    ({"pools": []}, "pools", "must have at least 1 entry"),
    ({"pools": [f"p{number}" for number in range(33)]}, "pools", "must have at most 32 entries"),
    ({"pools": ["a,b"]}, "pools.0", NAME),
    ({"pools": ["a|b"]}, "pools.0", NAME),
    ({"pools": "gpus"}, "pools", "must be a list"),
    ({"name": ""}, "name", TITLE),
    ({"name": "x" * 101}, "name", TITLE),
    ({"name": "two\nlines"}, "name", TITLE),
    ({"name": "end\n"}, "name", TITLE),
    ({"name": "turned \u202e round"}, "name", TITLE),
    ({"name": 7}, "name", "must be a text"),
    ({"labels": {"my label": "x"}}, "labels.my label", LABEL),
    ({"labels": {"run\n": "x"}}, "labels.run\n", LABEL),
    ({"labels": {"k" * 64: "x"}}, f"labels.{'k' * 64}", LABEL),
    ({"labels": {"run": 7}}, "labels.run", "must be a text"),
    ({"labels": {"run": None}}, "labels.run", "must be a text"),
    ({"labels": {"run": "x" * 256}}, "labels.run", "must have at most 255 characters"),
    ({"labels": {"run": "\udc80"}}, "labels.run", "must be valid Unicode"),
    ({"labels": {f"l{i}": "" for i in range(33)}}, "labels", "must have at most 32 entries"),
    ({"labels": ["run"]}, "labels", "must be an object"),
]


@pytest.mark.parametrize(("fields", "field", "reason"), REQUESTS)
def test_no_request(fields: dict[str, Any], field: str, reason: str) -> None:
    assert faults(RequestSpec, {"component": "t", **fields}) == [(field, reason)]


POOLS: list[tuple[dict[str, Any], str, str]] = [
    ({"name": "no spaces {here}"}, "name", NAME),
    ({"name": "p\n"}, "name", NAME),
    ({"name": None}, "name", "must be a text"),
    ({"capacity": {}}, "capacity", "must have at least 1 entry"),
    ({"colour": "red"}, "colour", "is not a field here"),
    ({"description": "x" * 1001}, "description", "must have at most 1000 characters"),
    ({"description": None}, "description", "must be a text"),
]


@pytest.mark.parametrize(("fields", "field", "reason"), POOLS)
def test_no_pool(fields: dict[str, Any], field: str, reason: str) -> None:
    assert faults(PoolSpec, {"name": "p", "capacity": {"gpu": 8}, **fields}) == [(field, reason)]


OTHERS: list[tuple[type[StrictModel], dict[str, Any], str, str]] = [
    (PoolUpdate, {"name": "q"}, "name", "is not a field here"),
    (PoolUpdate, {"description": "x" * 1001}, "description", "must have at most 1000 characters"),
    (GroupSpec, {"parent": "a/b"}, "parent", NAME),
    (GroupSpec, {"weight": 0}, "weight", "must be at least 1"),
    (GroupSpec, {"weight": 10_001}, "weight", "must be at most 10000"),
    (GroupSpec, {"priority": 1}, "priority", "is not a field here"),
    (PolicySpec, {"group": "research\n"}, "group", NAME),
    (PolicySpec, {"priority": -1}, "priority", "must be at least 0"),
    (PolicySpec, {"priority": 10_000}, "priority", "must be at most 9999"),
    (PolicySpec, {"priority": "9"}, "priority", WHOLE),
    (PolicySpec, {"priority": None}, "priority", WHOLE),
    (PolicySpec, {"weight": 1.5}, "weight", WHOLE),
    (PolicySpec, {"weight": True}, "weight", WHOLE),
    (PolicySpec, {"component": "t"}, "component", "is not a field here"),
    (PolicySpec, {"profile": "idle"}, "profile", "must be 'batch', 'training', 'service', 'sensitive' or 'interactive'"),
    (PolicySpec, {"profile": None}, "profile", "must be 'batch', 'training', 'service', 'sensitive' or 'interactive'"),
    (GroupSpec, {"profile": "batch"}, "profile", "is not a field here"),
    (WorkspaceSettings, {"unmanaged": "maybe"}, "unmanaged", "must be 'reject' or 'allow'"),
    (WorkspaceSettings, {"unmanaged": None}, "unmanaged", "must be 'reject' or 'allow'"),
    (WorkspaceSettings, {"managed": True}, "managed", "is not a field here"),
    (WorkspaceSettings, {"max_waiting": -1}, "max_waiting", "must be at least 0"),
    (WorkspaceSettings, {"component_limits": {"a": {}}}, "component_limits.a", COMPONENT),
    (ComponentLimitSettings, {"max_running": 1}, "max_running", "is not a field here"),
]


@pytest.mark.parametrize(("kind", "body", "field", "reason"), OTHERS)
def test_no_other_ask(kind: type[StrictModel], body: dict[str, Any], field: str, reason: str) -> None:
    assert faults(kind, body) == [(field, reason)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [[1], "{}", 1, None, True])
def test_every_ask_is_an_object(kind: type[StrictModel], body: Any) -> None:
    assert faults(kind, body) == [("", "must be an object")]


def test_what_is_required() -> None:
    assert faults(RequestSpec, {}) == [("component", "is required")]
    assert faults(PoolSpec, {}) == [("name", "is required"), ("capacity", "is required")]


def test_too_many_keys_together() -> None:
    body = {"component": "t", "resources": keys(MAX_KEYS), "settings": {"gpu_count": 1, "pool_resources": {"x": 1}}}
    assert faults(RequestSpec, body) == [("settings", "must ask, with resources, for at most 32 keys, not 34")]


def test_every_fault_is_told_up_to_a_bound() -> None:
    body = {"component": "a b", "resources": {"GPU": "1"}, "retries": None}
    assert faults(RequestSpec, body) == [
        ("component", NAME),
        ("resources.GPU", KEY),
        ("resources.GPU", WHOLE),
        ("retries", WHOLE),
    ]
    assert len(faults(RequestSpec, {f"x{i}": 1 for i in range(MAX_COUNTED_ERRORS - 1)})) == MAX_FIELD_ERRORS
    too_many = [("", f"has {MAX_COUNTED_ERRORS + 1} faults, too many to list")]
    assert faults(RequestSpec, {f"x{i}": 1 for i in range(MAX_COUNTED_ERRORS)}) == too_many


def test_a_field_of_great_length_is_told_shortened() -> None:
    assert faults(RequestSpec, {"component": "t", "x" * 10_000: 1}) == [("x" * 64, "is not a field here")]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.sampled_from(KINDS), st.data())
def test_whatever_comes_is_an_ask_or_a_list_of_reasons(kind: type[StrictModel], data: st.DataObject) -> None:
    fields = st.sampled_from([*kind.model_fields, "colour"])
    body = data.draw(st.dictionaries(fields, anything) | anything)
    try:
        ask = kind.model_validate(body)
    except ValidationError:
        assert all(reason for _, reason in faults(kind, body))
    else:
        assert body_digest(ask) == body_digest(kind.model_validate_json(ask.model_dump_json()))


# Properties of every spec


@pytest.mark.parametrize("kind", KINDS)
def test_every_ask_and_field_is_described(kind: type[StrictModel]) -> None:
    schema = kind.model_json_schema()
    assert schema["description"]
    assert schema["additionalProperties"] is False
    assert all(field.get("description") for field in schema["properties"].values())


def test_all_asks_are_tested_here() -> None:
    models = {value for value in vars(specs).values() if isinstance(value, type) and issubclass(value, StrictModel)}
    assert models - {StrictModel, SettingsModel} == set(KINDS)


def test_every_number_is_bounded() -> None:
    def numbers(schema: Any) -> list[dict[str, Any]]:
        inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else []
        here = [schema] if isinstance(schema, dict) and schema.get("type") in {"integer", "number"} else []
        return here + [number for part in inner for number in numbers(part)]

    bounds = [number for kind in KINDS for number in numbers(kind.model_json_schema())]
    assert bounds
    assert all(-1 <= number["minimum"] < number["maximum"] <= MAX_AMOUNT for number in bounds)


def test_an_ask_is_never_rewritten() -> None:
    with pytest.raises(ValidationError):
        a_request().component = "other"  # type: ignore[misc]


# The digest of a body
