"""Bounds of bodies, in bytes and in members, and of the description of their faults."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.api.body_limits import has_more_members
from app.api.routes import PREFIX, ROUTES
from app.api.routing import Route
from app.domain.validation_errors import MAX_COUNTED_ERRORS
from tests.support.in_process_api import Site, a_task, an_ask

KIB = 1024
LIMITS = {
    "create_pool": (1024 * KIB, 20_000),
    "submit_batch": (4096 * KIB, 100_000),
    "dry_run": (4096 * KIB, 100_000),
    "plan_declaration": (4096 * KIB, 100_000),
    "apply_declaration": (4096 * KIB, 100_000),
    "park_task": (320 * KIB, 20_000),
}
"""Bytes and members of the bodies that may be large; all others have 64 KiB and 2,000 members."""
WITH_BODY = [route for route in ROUTES if route.body_model]


def _path(route: Route) -> str:
    return PREFIX + route.path.replace("{", "").replace("}", "")


@pytest.mark.parametrize("route", WITH_BODY, ids=lambda route: route.operation_id)
def test_each_route_limits_the_bytes_of_its_body(site: Site, route: Route) -> None:
    limit, _ = LIMITS.get(route.operation_id, (64 * KIB, 2000))
    exact = b'{"pad":"' + b"x" * (limit - 10) + b'"}'
    assert len(exact) == limit
    assert site.ask(route.method, _path(route), raw=exact, root=True).malformed()["pad"] == "is not a field here"
    refused = site.ask(route.method, _path(route), raw=exact + b" ", root=True).refused(413, "body_too_large")
    assert refused["detail"] == f"a body may have {limit} bytes"


@pytest.mark.parametrize("route", WITH_BODY, ids=lambda route: route.operation_id)
def test_each_route_limits_the_members_of_its_body(site: Site, route: Route) -> None:
    _, limit = LIMITS.get(route.operation_id, (64 * KIB, 2000))
    exact = b'{"pad":[' + b",".join([b"1"] * (limit - 1)) + b"]}"
    assert site.ask(route.method, _path(route), raw=exact, root=True).malformed()["pad"] == "is not a field here"
    more = exact.replace(b"[1", b"[1,1")
    refused = site.ask(route.method, _path(route), raw=more, root=True).refused(413, "too_many_members")
    assert refused["detail"] == f"a body may have {limit} members in its objects and lists together, and this one has more"


def test_separators_within_texts_are_no_members(site: Site) -> None:
    site.pool(), site.policy()
    assert site.post("/requests", an_ask(labels={"note": ",[{" * 80})).status == 201
    text = json.dumps([["\\", '"', {}]] * 5000)
    assert text.count(",") + text.count("[") + text.count("{") > 20_000
    assert site.post("/tasks", a_task(message={"body": text})).status == 201


@settings(max_examples=300, derandomize=True)
@given(
    value=st.recursive(
        st.none() | st.integers() | st.text(alphabet=st.sampled_from('a",[{}]:\\ \u00e9\n'), max_size=8),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.text(alphabet=st.sampled_from('a",{\\'), max_size=4), inner, max_size=4)
        ),
        max_leaves=20,
    ),
    ensure_ascii=st.booleans(),
    indent=st.none() | st.just(1),
)
def test_members_are_counted_exactly(value: Any, ensure_ascii: bool, indent: int | None) -> None:
    data = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent).encode()
    count = _members(value)
    assert not has_more_members(data, count)
    if count:
        assert has_more_members(data, count - 1)


def _members(value: Any) -> int:
    if isinstance(value, dict):
        return max(1, len(value)) + sum(map(_members, value.values()))
    if isinstance(value, list):
        return max(1, len(value)) + sum(map(_members, value))
    return 0


def test_of_very_many_faults_only_the_number_is_said(site: Site) -> None:
    unknown = {f"k{number}": 1 for number in range(MAX_COUNTED_ERRORS)}
    assert len(site.post("/requests", unknown).refused(400, "malformed")["errors"]) == 1  # `component` is missing, too
    assert site.post("/requests", unknown).malformed() == {"": f"has {MAX_COUNTED_ERRORS + 1} faults, too many to list"}
    del unknown["k0"]
    assert len(site.post("/requests", unknown).refused(400, "malformed")["errors"]) == 20


def test_a_compressed_body_is_no_json(site: Site) -> None:
    headers = {"Content-Encoding": "gzip"}
    assert (
        site.ask("POST", "/requests", raw=b"\x1f\x8b\x08\x00" + b"\x00" * 20, headers=headers)
        .malformed()[""]
        .startswith("is not JSON: ")
    )
