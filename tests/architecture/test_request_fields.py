"""One table has every field of a request; the record, the response and the scripts agree with it."""

from __future__ import annotations

import re
from typing import Any

from app.api.schemas import requests as responses
from app.domain.models import Request
from app.domain.reasons import REASON_TEXTS, Reason, ReasonCode
from app.domain.request_fields import REQUEST_FIELDS, FieldKind, RequestField
from app.domain.states import RequestState
from tests.support.paths import ROOT

STORED = {field.name for field in REQUEST_FIELDS if field.is_stored}


def test_a_field_stands_once_in_the_table() -> None:
    attributes = [field.attribute for field in REQUEST_FIELDS if field.attribute]
    assert len(attributes) == len(set(attributes))
    public = [field.json for field in REQUEST_FIELDS if field.json]
    assert len(public) == len(set(public))


def test_the_record_has_the_attributes_of_the_table() -> None:
    assert {field.attribute for field in REQUEST_FIELDS if field.attribute} == set(Request._fields), (
        "app/domain/request_fields.py and Request differ"
    )


def test_only_required_fields_have_no_default() -> None:
    required = {field.attribute for field in REQUEST_FIELDS if field.is_required}
    assert required == set(Request._fields) - set(Request._field_defaults)


def test_the_response_has_the_public_fields_of_the_table_and_no_other() -> None:
    assert {field.json for field in REQUEST_FIELDS if field.json} == set(responses.RequestResponse.model_fields), (
        "app/domain/request_fields.py and RequestResponse differ"
    )


SAMPLES: dict[FieldKind, tuple[Any, Any]] = {
    FieldKind.FLAG: (True, True),
    FieldKind.SHAPE: (["p", "q"], ["p", "q"]),
    FieldKind.AMOUNTS: ({"gpu": 2}, {"gpu": 2}),
    FieldKind.LABELS: ({"run": "7"}, {"run": "7"}),
    FieldKind.STATE: (RequestState.PREEMPTING, "preempting"),
    FieldKind.POSITIONS: ({"p": 3}, {"p": 3}),
    FieldKind.REASON: (
        Reason(ReasonCode.DROPPED),
        {"code": "dropped", "message": REASON_TEXTS[ReasonCode.DROPPED], "pools": []},
    ),
}
"""A value of the record of each kind, and how it stands in the response."""


def sample(field: RequestField, number: int) -> tuple[Any, Any]:
    """Return a value of the record and how it stands in the response; texts, numbers and times differ from field to field."""
    match field.kind:
        case FieldKind.TEXT:
            return field.attribute, field.attribute
        case FieldKind.INTEGER:
            return number, number
        case FieldKind.TIME:
            return number, f"1970-01-01T00:00:00.{number:03}Z"
        case kind:
            return SAMPLES[kind]


def test_the_response_has_each_public_field_under_its_name() -> None:
    fields = [field for field in REQUEST_FIELDS if field.attribute and field.kind is not FieldKind.TIMELINE]
    samples = {field: sample(field, number) for number, field in enumerate(fields, 100)}
    record = Request(**{field.attribute: value for field, (value, _) in samples.items()})
    expected = {field.json: public for field, (_, public) in samples.items() if field.json}
    assert responses.RequestResponse.of(record).model_dump(mode="json") == expected


def test_the_scripts_use_no_other_field() -> None:
    used: dict[str, set[str]] = {}
    for path in sorted((ROOT / "app" / "store" / "lua").rglob("*.lua")):
        for name in re.findall(r"\brequest\.(\w+)", path.read_text("utf-8")):
            used.setdefault(name, set()).add(path.name)
    assert {name: files for name, files in used.items() if name not in STORED | {"id"}} == {}, (
        "a script uses a field that app/domain/request_fields.py lacks"
    )
    assert len(used) > 30, "the scripts do call it a request"
