"""The pools file: what is wrong with it is one line with its number, and what is written as on the command line is read so."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.declaration import Declaration, PoolDeclaration
from app.service.pools_file import InvalidDeclaration, read, require_quotas, write
from tests.support.paths import ROOT

SAMPLE = ROOT / "config" / "pools.yaml"


def test_a_text_is_read_as_it_was_meant() -> None:
    text = "pools:\n  - {name: p, capacity: {gpu: 8}, description: 'für alle 𝄞'}\n"
    assert read(text).pools == [PoolDeclaration(name="p", capacity={"gpu": 8}, description="für alle 𝄞")]
    assert read(write(read(text))) == read(text)
    assert read('{"pools": []}') == read("pools: []") == read("{}") == Declaration()


ONE = "pools:\n- name: p\n  capacity: {gpu: 1}\n"
BAD = {
    "": "line 1: expected `pools:` with a list of pools, not an empty file",
    "- name: p": "line 1: expected `pools:` with a list of pools, not a list",
    "gpus": "line 1: expected `pools:` with a list of pools, not a text",
    "name: p\ncapacity: {gpu: 1}": "line 1: expected `pools:` with a list of pools, not `name`, `capacity`",
    "pools: [": "line 2: did not find expected node content",
    "pools:\n\t- x": "line 2: found character that cannot start any token",
    "--- 1\n--- 2": "line 2: but found another document",
    ONE + "  capacity: {gpu: 2}\n": "line 4: capacity is there twice",
    ONE + "  settings: {order: a, order: b}\n": "line 4: order is there twice",
    "a: &a [1]\nb: [*a, *a]": "line 1: anchors and aliases are not allowed",
    "b: *a": "line 1: anchors and aliases are not allowed",
    "pools: !!set {a}": "line 1: tags are not allowed",
    "x: !!python/object:os.system 1": "line 1: tags are not allowed",
    "pools:\n- <<: {name: p}": "line 2: merge keys are not allowed",
    "[" * 100_000: "line 1: nested too deep",
    "? [1]\n: 2": "line 1: found unhashable key",
    "pools: 2024-13-45": "is no YAML: month must be in 1..12",
    "\x00": 'is no YAML: unacceptable character #x0000: control characters are not allowed in "<unicode string>", position 0',
    "x" * 2_000_001: "must have at most 2000000 characters",
    ONE + "  polices: []\n": "line 4: pools.0.polices: is not a field here; did you mean policies?",
    ONE + "  policies: [{component: c, weight: 0}, {component: 007}]\n": (
        "line 4: pools.0.policies.0.weight: must be at least 1 (and 1 more)"
    ),
    ONE + ONE[7:]: "line 1: pools: must list every pool once; p is there twice",
    "pools: [{name: p, capacity: {gpu: 8.0}}]": "line 1: pools.0.capacity.gpu: must be a whole number",
    ONE + "  settings: {patience: 5m}\n": "line 4: pools.0.settings.patience: is not a field here; did you mean patience_s?",
    ONE + "  settings: {patience_s: 5 minutes}\n": "line 4: pools.0.settings.patience_s: must be a whole number",
}


@pytest.mark.parametrize(
    "text", BAD, ids=[f"{number}-{text[:12].encode('unicode_escape').decode()}" for number, text in enumerate(BAD)]
)
def test_what_is_wrong_with_a_file_is_one_line(text: str) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        read(text)
    assert str(refused.value) == BAD[text]


def test_each_fault_of_a_file_has_its_field() -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        read("pools: [{name: p}, {capacity: {gpu: 1}}]")
    assert refused.value.faults == (("pools.0.capacity", "is required"), ("pools.1.name", "is required"))


def test_a_billion_laughs_cost_nothing() -> None:
    laughs = "a: &a [x]\n" + "".join(
        f"{new}: &{new} [*{old}, *{old}, *{old}]\n" for old, new in zip("abcdef", "bcdefg", strict=True)
    )
    with pytest.raises(InvalidDeclaration, match="anchors"):
        read(laughs)


def test_no_text_is_an_accident() -> None:
    text, refused = SAMPLE.read_text(encoding="utf-8"), 0
    for length in range(len(text)):
        try:
            read(text[:length])
        except InvalidDeclaration:
            refused += 1
    assert 0 < refused < len(text)


def test_amounts_durations_and_components_are_read_as_the_options_have_them() -> None:
    pool: dict[str, Any] = {
        "name": "p",
        "capacity": {"gpu": 8, "mcpu": 64000},
        "settings": {"patience_s": None, "grace_s": 90, "non_preemptible_usage_threshold": {"gpu": 1}},
        "policies": [
            {"component": "research", "component_type": "training", "settings": {"starvation_timeout_s": 5400}},
            {"component": "vision", "reserved": {"gpu": 2}},
        ],
    }
    text = """
    pools:
    - name: p
      capacity: gpu=8, mcpu=64000
      settings: {patience_s: none, grace_s: 1m30s, non_preemptible_usage_threshold: gpu=1}
      policies:
      - component: training/research
        settings: {starvation_timeout_s: 1h30m, over_limit_after_s: none, non_preemptible_usage_threshold: none}
      - {component: vision, reserved: gpu=2}
    """
    assert read(text) == Declaration.model_validate({"pools": [pool]})
    assert read(write(read(text))) == read(text)


def test_a_broken_rule_is_told_with_its_line() -> None:
    text = "pools:\n- name: p\n  capacity: {gpu: 8}\n  policies:\n  - component: a\n    reserved:\n      gpu: 9\n"
    with pytest.raises(InvalidDeclaration) as refused:
        require_quotas(read(text), text)
    assert str(refused.value) == "line 7: pool p: policy orchestrator/a reserves 9 of gpu, more than its limit of 8"
