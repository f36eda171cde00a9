"""The pools file has one grammar: that of the service is that of the command line, and its words are those of the options."""

from __future__ import annotations

import json
from pathlib import Path

import click
import jsonschema_rs
import pytest
import yaml
from poolkeeper.cli import declaration_files, groups, policies, pools
from pydantic import BaseModel

from app.domain.declaration import Declaration
from app.domain.specs import GroupSpec, PolicySpec, PoolSpec
from app.service import pools_file
from tests.support.paths import ROOT

POOL = "pools:\n- name: p\n  capacity: {gpu: 8}\n"
TEXTS = [
    "pools: []",
    "{}",
    POOL,
    "pools: [{name: p, capacity: 'gpu=8, mcpu=64000'}]",
    POOL + "  settings: {patience_s: none, grace_s: 1m30s, min_runtime_s: '90', queueing: strict}\n",
    POOL + "  settings: {non_preemptible_usage_threshold: none}\n",
    POOL + "  settings: {non_preemptible_usage_threshold: gpu=2, over_limit: none, over_limit_after_s: 2h}\n",
    POOL + "  groups: [{name: g, limit: gpu=4, settings: {starvation_timeout_s: 1d, over_limit: none}}]\n",
    POOL + "  policies: [{component: training/a, reserved: gpu=1}, {component: b, component_type: training}]\n",
    (ROOT / "config" / "pools.yaml").read_text("utf-8"),
]


WRONG_TEXTS = [
    "[]",
    "gpus: {gpu: 1}",
    "pools: {gpus: {capacity: {gpu: 1}}}",
    "pools: [{capacity: {gpu: 1}}]",
    "pools: [{name: p}]",
    "pools: [{name: p, capacity: {GPU: 1}}]",
    "pools: [{name: p, capacity: 'gpu=1.5'}]",
    POOL + "  colour: red\n",
    POOL + "  settings: {patience: 5}\n",
    POOL + "  settings: {queueing: stric}\n",
    POOL + "  settings: {patience_s: 5 minutes}\n",
    POOL + "  settings: {discipline: none}\n",
    POOL + "  policies: [{component: a/b/c}]\n",
    POOL + "  policies: [{component: a, settings: {queueing: strict}}]\n",
    POOL + "  groups: [{name: g, mode: lifo}]\n",
]


@pytest.fixture(scope="module")
def schema() -> jsonschema_rs.Validator:
    """Return a validator of the published schema."""
    text = (ROOT / "config" / "pools.schema.json").read_text("utf-8")
    return jsonschema_rs.validator_for(json.loads(text))


@pytest.mark.parametrize("text", [text for text in TEXTS if text != "{}"])
def test_the_schema_allows_what_is_read(schema: jsonschema_rs.Validator, text: str) -> None:
    assert [str(error) for error in schema.iter_errors(yaml.safe_load(text))] == []


@pytest.mark.parametrize("text", WRONG_TEXTS)
def test_the_schema_refuses_what_is_refused(schema: jsonschema_rs.Validator, text: str) -> None:
    assert not schema.is_valid(yaml.safe_load(text))
    with pytest.raises(pools_file.InvalidDeclaration):
        pools_file.read(text)


def test_the_sample_names_the_schema_beside_it() -> None:
    sample = ROOT / "config" / "pools.yaml"
    first_line = sample.read_text("utf-8").splitlines()[0]
    assert (sample.parent / first_line.removeprefix("# yaml-language-server: $schema=")).is_file()


@pytest.mark.parametrize("text", TEXTS)
def test_both_read_a_file_alike(text: str, tmp_path: Path) -> None:
    path = tmp_path / "pools.yaml"
    path.write_text(text)
    assert Declaration.model_validate(declaration_files.read(str(path)).declaration) == pools_file.read(text)


@pytest.mark.parametrize(
    ("model", "command"),
    [(PoolSpec, pools.create), (PolicySpec, policies.attach), (GroupSpec, groups.create)],
)
def test_every_word_of_the_file_is_a_word_of_the_command_line(model: type[BaseModel], command: click.Command) -> None:
    words = {word for param in command.params if isinstance(param, click.Option) for word in param.opts}
    arguments = {param.name for param in command.params if isinstance(param, click.Argument)}
    assert {f"--{field}" for field in model.model_fields if field not in arguments} <= words


def test_the_type_of_a_component_is_an_option_of_that_name() -> None:
    words = {word for param in policies.attach.params for word in param.opts}
    assert {"component", "--component-type"} <= words
