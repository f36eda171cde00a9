"""Each field of a pool, group or policy that can be set stands in the input, the record, the snapshot and the response."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from pydantic import BaseModel

from app.api.schemas.dry_run import DryRunGroupSpec, DryRunPolicySpec, DryRunPoolUpdate
from app.api.schemas.pools import GroupResponse, PolicyResponse, PoolResponse
from app.domain import models
from app.domain.declaration import GroupDeclaration, PolicyDeclaration, PoolDeclaration
from app.domain.snapshot import AccountSnapshot
from app.domain.specs import GroupSpec, PolicySpec, PoolSpec, PoolUpdate

SPECS: dict[type[BaseModel], tuple[type[BaseModel], type]] = {
    PoolSpec: (PoolResponse, models.Pool),
    GroupSpec: (GroupResponse, models.Group),
    PolicySpec: (PolicyResponse, models.Policy),
}
"""The response and the record of each input."""

EXTENSIONS: dict[type[BaseModel], tuple[type[BaseModel], set[str]]] = {
    PoolDeclaration: (PoolSpec, {"groups", "policies"}),
    GroupDeclaration: (GroupSpec, {"name"}),
    PolicyDeclaration: (PolicySpec, {"component", "component_type"}),
    DryRunPoolUpdate: (PoolUpdate, {"name"}),
    DryRunGroupSpec: (GroupDeclaration, {"pool"}),
    DryRunPolicySpec: (PolicyDeclaration, {"pool"}),
}
"""The base of each further input, and the fields that it adds to say which object is meant."""


def input_fields(spec: type[BaseModel]) -> set[str]:
    """Return the fields of an input; the group of a policy is its parent."""
    return {"parent" if name == "group" else name for name in spec.model_fields}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.__name__)
def test_a_field_that_can_be_set_can_be_read(spec: type[BaseModel]) -> None:
    response, record = SPECS[spec]
    assert set(spec.model_fields) - set(response.model_fields) == set(), (
        "add the field to the response in app/api/schemas/pools.py"
    )
    assert input_fields(spec) - {field.name for field in fields(record)} == set(), (
        "add the field to the record in app/domain/models.py"
    )


@pytest.mark.parametrize("spec", [GroupSpec, PolicySpec], ids=lambda spec: spec.__name__)
def test_the_planner_has_every_field_that_can_be_set(spec: type[BaseModel]) -> None:
    assert input_fields(spec) - {field.name for field in fields(AccountSnapshot)} == set(), (
        "add the field to AccountSnapshot in app/domain/snapshot.py"
    )


@pytest.mark.parametrize("extension", EXTENSIONS, ids=lambda extension: extension.__name__)
def test_an_input_that_names_its_object_adds_only_the_name(extension: Any) -> None:
    base, names = EXTENSIONS[extension]
    assert issubclass(extension, base)
    assert set(extension.model_fields) - set(base.model_fields) == names
    for name, field in base.model_fields.items():
        assert (extension.model_fields[name].default, extension.model_fields[name].annotation) == (
            field.default,
            field.annotation,
        )
