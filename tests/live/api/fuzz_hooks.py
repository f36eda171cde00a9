"""Hooks that tell schemathesis facts that are not in the schema: existing names, endless streams, bounds of a poll.

They are loaded by its own process (`SCHEMATHESIS_HOOKS`), which gets the existing requests in `FUZZED`: `id:fence id:fence …`.
`POOLKEEPER_TEST_TIMES=2 pytest tests/live/api/test_fuzz.py` sends every case.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import defaultdict
from contextlib import suppress
from typing import Any

import schemathesis
from schemathesis.generation.meta import CoveragePhaseData

from app.domain.amounts import memory_mb

NAMES = {"pool": "gpus", "component": "team", "group": "lab", "task": "t5"}
REQUESTS = [tuple(each.split(":")) for each in os.environ.get("FUZZED", "").split()]
EVERY_CASE = os.environ.get("POOLKEEPER_TEST_TIMES", "1") != "1"
FIRST_CASES = 5
"""Cases of the coverage phase that are sent of every operation."""
ONE_IN = int(os.environ.get("FUZZ_ONE_IN", "1"))
"""After these, one in so many is sent."""
LISTED_ONCE = ("pools", "groups", "policies")
DRY_RUN_KINDS = ("request", "pool", "policy", "group", "pools", "cancel", "drop")
DECLARATION = "/api/v1/declaration"
NO_WRITES = ("/api/v1/declaration/plan", "/api/v1/dry-run")
"""Routes whose bodies contain the bodies of other routes, which are sent every case of them."""
NESTED = re.compile(r"/settings/|/pools/(anyOf/\d/)?items/|'(settings|pools)' value: .*'\w+'")
"""A field inside the settings or the declared pools of a body: in a location, or in the description of a valid case."""
_numbers = itertools.count()
_nested_cases = itertools.count()
_cases: dict[str, itertools.count[int]] = defaultdict(itertools.count)


@schemathesis.hook
def filter_case(context: schemathesis.HookContext, case: schemathesis.Case[Any]) -> bool:
    """True if no other route is sent the same field of the same schema; every tenth such case is sent, too."""
    data = case.meta.phase.data if case.meta else None
    if EVERY_CASE or not isinstance(data, CoveragePhaseData):
        return True
    path, number = case.operation.path, next(_cases[case.operation.label])
    if number >= FIRST_CASES and number % ONE_IN:
        return False
    repeated = path in NO_WRITES or (path.startswith("/api/v1/pools") and data.location)
    return not (repeated and NESTED.search(data.location or data.description)) or next(_nested_cases) % 10 == 0


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: dict[str, Any]) -> None:
    """Adapt the case before it is sent."""
    if case.operation.path == "/api/v1/events":
        _set(case, "Accept", "application/json")  # a stream would not end
    if isinstance(case.query, dict):
        _shorten(case.query)
    if case.meta and case.meta.generation.mode.is_positive:
        _make_true(case)


def _shorten(query: dict[str, Any]) -> None:
    """Shorten a poll that would be accepted to a thousandth of its time."""
    with suppress(TypeError, ValueError):
        wait_s = float(query["wait_s"]) if "wait_s" in query else 0.0
        if 0 < wait_s <= 60:
            query["wait_s"] = wait_s / 1000


def _make_true(case: schemathesis.Case[Any]) -> None:
    """Make the values of a case fit the rules that no schema can state."""
    number = next(_numbers)
    if isinstance(case.query, dict):
        case.query.pop("cursor", None)  # opaque: only one that was answered is right
        if case.operation.path == DECLARATION and number % 3:
            case.query.pop("prune", None)  # every third keeps it, and is refused as the pool is in use
    body = _whole(case.body)
    if isinstance(body, dict) and isinstance(body.get("settings"), dict) and not _is_memory(body["settings"].get("memory")):
        del body["settings"]["memory"]  # units, and how many, are described in words
    if isinstance(body, dict) and case.operation.path.endswith("/dry-run"):
        body = _one_dry_run(body)
    if case.path_parameters and number % 3:  # every third is left as it is, and mostly not found
        _set(case, "Poolkeeper-Workspace", "default")
        request, fence = REQUESTS[number % len(REQUESTS)]
        there_are = NAMES | {"request": request}
        case.path_parameters = {name: there_are[name] for name in case.path_parameters}
        if isinstance(body, dict) and "fence" in body:
            body["fence"] = int(fence)
    case.body = body


def _one_dry_run(body: dict[str, Any]) -> dict[str, Any]:
    """Return one kind of dry run out of the alternatives in the body."""
    kinds = [name for name in DRY_RUN_KINDS if body.get(name) is not None] or ["cancel"]
    dry_run = {kinds[0]: body.get(kinds[0]) or REQUESTS[0][0]}
    return dry_run | ({"prune": body["prune"]} if "pools" in dry_run and "prune" in body else {})


def _set(case: schemathesis.Case[Any], header: str, text: str) -> None:
    if case.headers is not None:
        case.headers[header] = text


def _whole(value: Any) -> Any:
    """Return whole numbers as integers, as JSON Schema counts `2.0` as one; round others to six decimals, the most that
    the API takes."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else round(value, 6)
    if isinstance(value, list):
        return [_whole(part) for part in value]
    if isinstance(value, dict):
        return {name: _once(_whole(part)) if name in LISTED_ONCE else _whole(part) for name, part in value.items()}
    return value


def _once(values: Any) -> Any:
    """Return the first of the values that share a name: a schema cannot demand unique names."""
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        return values
    stored: dict[object, Any] = {}
    for value in values:
        stored.setdefault((value.get("name"), value.get("component"), value.get("component_type", "orchestrator")), value)
    return list(stored.values())


def _is_memory(memory: object) -> bool:
    try:
        return memory is None or memory_mb(str(memory)) >= 0
    except ValueError:
        return False
