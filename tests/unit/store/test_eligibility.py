"""Eligibility: the requests that a pool could ever grant, and its reason for each of the others."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.models import Request
from app.domain.reasons import PoolRefusal, ReasonCode
from tests.support.world import World

GPU_POLICY: dict[str, Any] = {"priority": 10, "reserved": {"gpu": 4}, "limit": {"gpu": 8}}


def reason_codes(request: Request) -> tuple[str, list[tuple[str, str]]]:
    """Return the request's own reason, and each pool's."""
    assert request.status == "rejected"
    assert request.reason is not None
    return str(request.reason.code), [(refusal.pool, str(refusal.code)) for refusal in request.reason.pools]


def test_a_preemptible_step_borrows_past_reserved(world: World) -> None:
    world.pool("datacenter-gpus", gpu=8)
    world.policy("team-ml-orch", "datacenter-gpus", **GPU_POLICY)
    a = world.submit("team-ml-orch", settings={"gpu_count": 6})
    assert (a.status, a.pool, a.fence, a.granted_ms) == ("allocated", "datacenter-gpus", 1, world.clock.now_ms())
    policy = world.get_pool("datacenter-gpus").policies["orchestrator/team-ml-orch"]
    assert (policy.used, policy.used_fixed) == ({"gpu": 6, "step_run": 1}, {})
    assert (policy.borrowed["gpu"], world.get_pool("datacenter-gpus").borrowed) == (2, {"gpu": 2})


def test_a_non_preemptible_step_stays_inside_reserved(world: World) -> None:
    world.pool("datacenter-gpus", gpu=8)
    world.policy("team-ml-orch", "datacenter-gpus", **GPU_POLICY)
    a = world.submit("team-ml-orch", settings={"gpu_count": 2}, preemptible=False)
    b = world.submit("team-ml-orch", settings={"gpu_count": 6}, preemptible=False)
    assert a.status == "allocated"
    assert b.reason is not None
    assert b.reason.pools == (
        PoolRefusal("datacenter-gpus", ReasonCode.EXCEEDS_RESERVED, "gpu", 6, 4, "policy:orchestrator/team-ml-orch"),
    )
    assert b.reason.message == (
        "datacenter-gpus: is not preemptible and asks 6 of gpu; policy orchestrator/team-ml-orch has 4 reserved"
    )
    assert world.queue("datacenter-gpus") == []


def test_cpu_and_memory_not_metered(world: World) -> None:
    world.pool("training", gpu=4)
    world.policy("k8s-orch", "training", priority=10, reserved={"gpu": 2}, limit={"gpu": 4})
    a = world.submit("k8s-orch", settings={"gpu_count": 1, "cpu_count": 32.0, "memory": "64GiB"}, preemptible=False)
    assert (a.status, a.resources["mcpu"]) == ("allocated", 32_000)


def test_cpu_metered(world: World) -> None:
    world.pool("training", gpu=4, mcpu=32_000)
    numbers = {"reserved": {"gpu": 2, "mcpu": 4000}, "limit": {"gpu": 4, "mcpu": 32_000}}
    world.policy("k8s-orch", "training", priority=10, **numbers)
    a = world.submit("k8s-orch", settings={"gpu_count": 1, "cpu_count": 2.0}, preemptible=False)
    b = world.submit("k8s-orch", settings={"gpu_count": 1, "cpu_count": 8.0}, preemptible=False)
    c = world.submit("k8s-orch", settings={"gpu_count": 1, "cpu_count": 8.0})
    assert (a.status, c.status) == ("allocated", "allocated")
    assert reason_codes(b) == ("exceeds_reserved", [("training", "exceeds_reserved")])


def test_a_key_on_the_pool_but_not_on_the_policy_has_nothing_reserved(world: World) -> None:
    world.pool("training", gpu=4, mcpu=8000)
    world.policy("k8s-orch", "training", priority=10, reserved={"gpu": 2}, limit={"gpu": 4})
    a = world.submit("k8s-orch", settings={"gpu_count": 1, "cpu_count": 4.0})
    b = world.submit("k8s-orch", settings={"gpu_count": 1, "cpu_count": 1.0}, preemptible=False)
    assert a.status == "allocated"
    assert reason_codes(b)[0] == "exceeds_reserved"


def test_custom_keys(world: World) -> None:
    world.pool("inference", gpu=8, tensorrt_sessions=4)
    both, bare = "step_operator/gpu-step-op", "step_operator/bare-op"
    world.policy(both, "inference", reserved={"gpu": 2, "tensorrt_sessions": 2}, limit={"gpu": 8, "tensorrt_sessions": 4})
    world.policy(bare, "inference", reserved={"gpu": 2}, limit={"gpu": 8})
    settings = {"gpu_count": 1, "pool_resources": {"tensorrt_sessions": 1}}
    a = world.submit(both, settings=settings, preemptible=False)
    b = world.submit(bare, settings=settings, preemptible=False)
    c = world.submit(bare, settings=settings)
    assert [a.status, b.status, c.status] == ["allocated", "rejected", "allocated"]
    assert reason_codes(b)[0] == "exceeds_reserved"


def test_the_type_is_part_of_the_component(world: World) -> None:
    world.pool(gpu=1)
    world.policy("step_operator/t")
    assert reason_codes(world.submit("orchestrator/t")) == ("no_policy", [])


def test_hard_rejections_never_queue(world: World) -> None:
    world.pool("small", gpu=8)
    world.policy("k8s-orch", "small", **GPU_POLICY)
    world.policy("team-a-orch", "small", priority=10, reserved={"gpu": 2}, limit={"gpu": 4})
    a = world.submit("k8s-orch", settings={"gpu_count": 10})
    b = world.submit("team-a-orch", settings={"gpu_count": 6})
    assert (reason_codes(a)[0], reason_codes(b)[0]) == ("exceeds_capacity", "exceeds_limit")
    assert (world.queue("small"), world.used("small")) == ([], {"gpu": 0})
    assert (a.ended_ms, a.position) == (world.clock.now_ms(), {})


def test_every_key_in_one_pool(world: World) -> None:
    world.pool("gpu-only", gpu=8)
    world.pool("gpu-and-trt", gpu=8, tensorrt_sessions=4)
    world.policy("o1", "gpu-only", priority=10)
    world.policy("o2", "gpu-only", priority=20)
    world.policy("o2", "gpu-and-trt", priority=10)
    a = world.submit("o1", gpu=1, tensorrt_sessions=1)
    assert reason_codes(a) == ("missing_key", [("gpu-only", "missing_key")])
    assert world.submit("o2", gpu=1, tensorrt_sessions=1).pool == "gpu-and-trt"


def test_the_metered_pool_cannot_and_the_gpu_only_one_wins(world: World) -> None:
    world.pool("gpu-only-fallback", gpu=8)
    world.pool("metered-cpu-mem", gpu=8, mcpu=128_000, memory_mb=524_288)
    reserved, limit = {"gpu": 4, "mcpu": 4000, "memory_mb": 8192}, {"gpu": 8, "mcpu": 64_000, "memory_mb": 131_072}
    world.policy("k8s-orch", "metered-cpu-mem", priority=100, reserved=reserved, limit=limit)
    world.policy("k8s-orch", "gpu-only-fallback", priority=50, reserved={"gpu": 4}, limit={"gpu": 8})
    a = world.submit("k8s-orch", settings={"gpu_count": 1, "cpu_count": 8.0, "memory": "32GiB"}, preemptible=False)
    b = world.submit("k8s-orch", settings={"gpu_count": 1, "cpu_count": 2.0, "memory": "4GiB"}, preemptible=False)
    assert (a.pool, a.resources["mcpu"], a.resources["memory_mb"]) == ("gpu-only-fallback", 8000, 34_360)
    assert b.pool == "metered-cpu-mem"


def test_the_reason_is_that_of_the_first_pool_by_priority_then_name(world: World) -> None:
    world.pool("big", gpu=4)
    world.pool("a", tpu=1)
    world.pool("b", gpu=4)
    world.policy("t", "a", priority=1)
    world.policy("t", "b", priority=1, limit={"gpu": 0})
    world.policy("t", "big", priority=7)
    rejected = world.submit(gpu=5)
    expected = [("big", "exceeds_capacity"), ("a", "missing_key"), ("b", "exceeds_capacity")]
    assert reason_codes(rejected) == ("exceeds_capacity", expected)
    assert rejected.reason == world.get(rejected).reason


def test_an_explicit_limit_of_zero_stands(world: World) -> None:
    world.pool(gpu=4)
    world.policy(limit={"gpu": 0})
    assert reason_codes(world.submit(gpu=1))[0] == "exceeds_limit"
    assert world.submit().status == "allocated"


def test_a_limit_of_a_group_above_counts(world: World) -> None:
    world.pool(gpu=10)
    world.group("upper", limit={"gpu": 3})
    world.group("lower", parent="upper", limit={"gpu": 6})
    world.policy(group="lower")
    rejected = world.submit(gpu=4)
    assert rejected.reason is not None
    assert rejected.reason.pools == (PoolRefusal("p", ReasonCode.EXCEEDS_LIMIT, "gpu", 4, 3, "group:upper"),)


@pytest.mark.parametrize("gpu", [1, 4])
def test_present_use_does_not_matter(world: World, gpu: int) -> None:
    world.pool(gpu=4)
    world.policy()
    world.submit(gpu=4)
    assert world.submit(gpu=gpu).status == "queued"


def test_step_run_caps_concurrent_steps(world: World) -> None:
    world.pool("training", gpu=16, step_run=10)
    numbers = {"reserved": {"gpu": 8, "step_run": 4}, "limit": {"gpu": 16, "step_run": 4}}
    world.policy("k8s-orch", "training", priority=10, **numbers)
    a, b, c, d, e = (world.submit("k8s-orch", settings={"gpu_count": 2}) for _ in range(5))
    assert (world.status(a, b, c, d, e), world.used("training")) == (["allocated"] * 4 + ["queued"], {"gpu": 8, "step_run": 4})
    world.release(b)
    assert (world.status(e), world.used("training")) == (["allocated"], {"gpu": 8, "step_run": 4})


def test_the_reason_is_that_of_the_preferred_pool_where_the_last_one_has_another(world: World) -> None:
    world.pool("a", gpu=4)
    world.pool("b", tpu=4)
    world.policy("t", "a", priority=2)
    world.policy("t", "b", priority=1)
    assert reason_codes(world.submit(gpu=5)) == ("exceeds_capacity", [("a", "exceeds_capacity"), ("b", "missing_key")])
