"""The sentence of a rejection names the pools that have the keys."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.models import Request
from tests.support.world import World

NO_SINGLE_POOL = (
    "no single pool has gpu and matlab: gpu is in gpus, matlab is in licences; "
    "all that one request asks for has to be in one pool"
)


@pytest.fixture
def lab(world: World) -> World:
    """Create pools of GPUs and of licences, and a pool with both for other components."""
    world.pool("gpus", gpu=8)
    world.pool("licences", matlab=2)
    for name in ("gpus", "licences"):
        world.policy("vision", name)
    return world


def message(request: Request) -> str:
    """Return the sentence of a rejected request."""
    assert request.status == "rejected"
    assert request.reason
    return request.reason.message


def test_no_single_pool_has_both_keys(lab: World) -> None:
    rejected = lab.submit("vision", gpu=1, matlab=1)
    assert message(rejected) == NO_SINGLE_POOL
    assert message(lab.get(rejected)) == message(rejected)


def test_a_pool_of_others_has_both_keys(lab: World) -> None:
    lab.pool("both", gpu=1, matlab=1)
    assert message(lab.submit("vision", gpu=1, matlab=1)) == (
        "gpus: asks 1 of matlab, which the pool does not have; licences: asks 1 of gpu, which the pool does not have; "
        "pool both has gpu and matlab, but no policy for this component"
    )
    named = lab.submit("vision", gpu=1, matlab=1, pools=["gpus"])
    assert message(named) == "gpus: asks 1 of matlab, which the pool does not have; pool both has gpu and matlab"


def test_a_key_that_no_pool_has(lab: World) -> None:
    assert message(lab.submit("vision", gpu=1, h100=1)) == "no pool has h100"
    assert message(lab.submit("vision", mcpu=9, h100=1, a100=1)) == "no pool has a100 and h100"


def test_a_pool_that_lacks_a_key_is_left_out_where_another_has_all(lab: World) -> None:
    assert message(lab.submit("vision", gpu=9)) == "gpus: asks 9 of gpu; the pool has 8 in all"
    rejected = lab.submit("vision", gpu=9)
    assert rejected.reason
    assert [str(refusal.code) for refusal in rejected.reason.pools] == ["exceeds_capacity", "missing_key"]


@pytest.mark.parametrize(
    ("resources", "rest"),
    [
        ({"gpu": 1}, "; pool gpus has gpu"),
        ({"gpu": 1, "matlab": 1}, f"; {NO_SINGLE_POOL}"),
        ({"tpu": 1}, "; no pool has tpu"),
        ({}, ""),
    ],
)
def test_a_component_without_a_policy(lab: World, resources: dict[str, Any], rest: str) -> None:
    assert message(lab.submit("step_operator/audio", **resources)) == f"no pool has a policy for step_operator/audio{rest}"


def test_an_unknown_pool_is_named_with_a_similar_one(lab: World) -> None:
    assert message(lab.submit("vision", gpu=1, pools=["gpu"])) == "gpu: there is no such pool; did you mean gpus?"
    assert message(lab.submit("vision", gpu=1, pools=["zzz"])) == (
        "zzz: there is no such pool; the pools are gpus and licences"
    )
    both = lab.submit("vision", matlab=1, pools=["gpus", "licence"])
    assert message(both) == (
        "licence: there is no such pool; did you mean licences?; "
        "gpus: asks 1 of matlab, which the pool does not have; pool licences has matlab"
    )
    assert both.reason
    assert [(refusal.pool, str(refusal.code)) for refusal in both.reason.pools] == [
        ("gpus", "missing_key"),
        ("licence", "unknown_pool"),
    ]
    assert lab.submit("vision", gpu=1, pools=["gpu", "gpus"]).status == "allocated"


def test_an_unknown_pool_where_there_is_none_or_one(world: World) -> None:
    assert message(world.submit("vision", gpu=1, pools=["p"])) == "p: there is no such pool; there are no pools"
    world.pool("only", gpu=1)
    assert message(world.submit("vision", gpu=1, pools=["p"])) == "p: there is no such pool; the only pool is only"


def test_very_many_pools_are_not_all_read(world: World) -> None:
    for number in range(70):
        world.pool(f"pool{number:02}", gpu=1)
    world.policy("vision", "pool69")
    assert message(world.submit("vision", tpu=1)) == "pool69: asks 1 of tpu, which the pool does not have"
    many = message(world.submit("vision", gpu=1, pools=["zzz"]))
    assert many.startswith("zzz: there is no such pool; the pools are pool69, pool00, ")
    assert many.endswith(", pool30 and ...")
    others = message(world.submit("audio", gpu=1))
    assert others.endswith(" pool06 and pool07 have gpu")
