"""Digests of specs: equal for equal specs, different for any other, and the same in every release."""

from __future__ import annotations

from typing import Any

from app.domain.request_origin import ORIGIN_LABELS
from app.domain.specs import RequestSpec, body_digest, request_digest


def a_request(**fields: Any) -> RequestSpec:
    return RequestSpec.model_validate({"component": "t", **fields})


def test_what_says_the_same_has_one_digest() -> None:
    plain = a_request(resources={"gpu": 1, "mcpu": 2}, settings={"cpu_count": 4})
    spelled = a_request(
        settings={"memory": None, "cpu_count": 4.0}, lease_s=60, labels={}, resources={"mcpu": 2, "gpu": 1}, preemptible=True
    )
    assert body_digest(plain) == body_digest(spelled)
    assert body_digest(a_request(resources={}, settings={})) == body_digest(a_request())


def test_a_digest_is_the_same_in_the_next_release() -> None:
    digest = "9b2d56f5fa8fa230a3274dac6330fc8038852dc3237dd4963673aa0974c35f7b"
    assert body_digest(a_request(resources={"gpu": 1})) == digest


DIFFERENT: list[dict[str, Any]] = [
    {},
    {"component": "u"},
    {"component_type": "step_operator"},
    {"resources": {"gpu": 1}},
    {"resources": {"gpu": 2}},
    {"settings": {"gpu_count": 1}},
    {"settings": {"gpu_count": 0}},
    {"preemptible": False},
    {"preemption_class": 6},
    {"checkpoint": "auto"},
    {"checkpoint_minutes": 5},
    {"walltime_s": 1},
    {"retries": 0},
    {"lease_s": None},
    {"lease_s": 61},
    {"queue_ttl_s": None},
    {"labels": {"a": "b"}},
    {"labels": {"a": "é"}},
]


def test_each_other_body_has_another_digest() -> None:
    digests = [body_digest(a_request(**fields)) for fields in DIFFERENT]
    assert len(set(digests)) == len(DIFFERENT)


def test_the_origin_of_a_request_does_not_count() -> None:
    origin = dict.fromkeys(ORIGIN_LABELS, "anything")
    assert request_digest(a_request(labels=origin)) == request_digest(a_request()) == body_digest(a_request())
    assert request_digest(a_request(labels=origin | {"team": "a"})) == request_digest(a_request(labels={"team": "a"}))
    assert request_digest(a_request(labels={"team": "a"})) != request_digest(a_request())


def test_the_order_of_named_pools_means_nothing() -> None:
    one, other = a_request(pools=["b", "a", "b"]), a_request(pools=["a", "b"])
    assert one.pools == ["a", "b"]
    assert body_digest(one) == body_digest(other) != body_digest(a_request())
