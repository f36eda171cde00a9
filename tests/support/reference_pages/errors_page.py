"""The reference page of errors."""

from __future__ import annotations

from poolkeeper.cli.error_output import exit_code
from poolkeeper.errors import api_error

from app.api.error_codes import ERROR_CODES
from tests.support.reference_pages.json_schema import Schema, field_table, schema_of
from tests.support.reference_pages.markdown import code, json_block, page, table
from tests.support.reference_pages.recorded_examples import examples

TITLES = {
    400: "malformed input",
    401: "no valid token",
    403: "not permitted",
    404: "no such object",
    405: "wrong method",
    409: "not in the present state",
    413: "too large",
    415: "wrong media type",
    416: "not in the file",
    422: "against the rules",
    429: "a limit is reached",
    500: "a bug",
    503: "not available now",
}
TYPES = {"FieldError": "object of `field` and `reason`", "RequestState": "[state](states.md)"}


def errors_page() -> str:
    """Return the page: the error body, and every code by status."""
    return page(
        "Errors",
        "Every refusal of the HTTP API is a problem document (RFC 9457). Its `code` is stable: a program compares the code, "
        "a person reads `detail` and `hint`.",
        "app/api/error_codes.py",
        json_block(examples().problems["stale_fence"]["value"]),
        "The command line prints `detail` and `hint` on stderr, and ends with the exit code of the status. Why a request was "
        "rejected, ended or waits is not an error: see [reasons](reasons.md).",
        "## Fields",
        field_table(_without_codes(schema_of("Problem")), TYPES.__getitem__),
        "## Retries",
        "If a call is answered 429 or 503, repeat it after the seconds of the header `Retry-After`. If a POST may have been "
        "done, repeat it with the same `Idempotency-Key`. The clients of Poolkeeper do both by themselves.",
        *(_section(status) for status in sorted({status for row in ERROR_CODES.values() for status in row.statuses})),
    )


def _without_codes(schema: Schema) -> Schema:
    """Return the schema without the list of codes, which the sections have."""
    properties = schema["properties"]
    return {"properties": {**properties, "code": {key: part for key, part in properties["code"].items() if key != "enum"}}}


def _section(status: int) -> str:
    ends = exit_code(api_error(status, {}, None))
    rows = ([code(name), row.meaning, row.remedy] for name, row in ERROR_CODES.items() if status in row.statuses)
    head = f"## {status}: {TITLES[status]}\n\nExit code of the command line: [{ends.value}](cli.md#exit-codes).\n\n"
    return head + table(["code", "meaning", "remedy"], rows)
