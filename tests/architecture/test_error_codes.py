"""The table of error codes has every code that the service raises, with its status, and no other."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from app.api.error_codes import ERROR_CODES
from app.api.errors import WERKZEUG_CODES
from app.api.openapi_examples import Examples
from app.domain import errors
from app.domain.workspace_limits import TEMPLATE_LIMIT, WORKSPACE_LIMITS
from tests.support.paths import ROOT

KINDS = {"Conflict": 409, "RuleViolation": 422}
OTHERS = {
    *((f"no_such_{kind}", 404) for kind in ("pool", "group", "policy", "request", "task")),
    *((f"no_such_{kind}", 422) for kind in ("pool", "group")),
    *((code, status) for status, code in WERKZEUG_CODES.items()),
    *((limit.code, 429) for limit in (*WORKSPACE_LIMITS.values(), TEMPLATE_LIMIT) if limit.code),
    *((code, KINDS[kind.__name__]) for code, (kind, _) in errors._RULE_REFUSALS.items()),
    *{("stale_fence", 409), ("refused", 416), ("internal_error", 500), ("too_many_waiters", 503), ("token_share_used", 429)},
}
"""Codes that no literal argument has."""
OF_COMMANDS = {"token_exists", "ended"}
"""Codes of `poolkeeperd token` and of the dashboard, which no answer of the API has."""


def raised_codes() -> Iterator[tuple[str, int]]:
    """Yield code and status of each call with literal arguments."""
    for path in (ROOT / "app").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name(id="HttpRefusal"), args=[ast.Constant(value=int(status)), ast.Constant(value=str(code)), *_]
                ):
                    yield code, status
                case ast.Call(func=ast.Name(id="_unauthorized"), args=[ast.Constant(value=str(code)), *_]):
                    yield code, 401
                case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str(code)), *_]) if name in KINDS:
                    yield code, KINDS[name]


def test_the_table_has_every_code_with_its_statuses_and_no_other() -> None:
    fixed = {
        (code, status)
        for code, row in ERROR_CODES.items()
        if not code.startswith(("redis_", "dry_run_"))
        for status in row.statuses
    }
    assert {pair for pair in raised_codes() if pair[0] not in OF_COMMANDS} | OTHERS == fixed, (
        "the rows of app/api/error_codes.py are the codes and statuses of the source"
    )


def test_every_recorded_problem_is_in_the_table() -> None:
    problems = [problem["value"] for problem in Examples.read().problems.values()]
    assert [problem for problem in problems if problem["status"] not in ERROR_CODES[problem["code"]].statuses] == []
