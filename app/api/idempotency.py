"""The header `Idempotency-Key`. The key is stored by `lib/admission.lua` (requests) and `tasks/park_task.lua` (tasks)."""

from __future__ import annotations

from app.api.errors import MalformedInput
from app.api.routing import Call
from app.domain.names import IDEMPOTENCY_PATTERN, PATTERN_TEXTS, is_idempotency_key


def read_idempotency_key(call: Call, most: int = 255) -> str | None:
    """Return the key of the call, None if it has none; raise if it is malformed or longer than `most`."""

    key = call.headers.get("Idempotency-Key")
    if key is not None and (not is_idempotency_key(key) or len(key) > most):
        raise MalformedInput([("Idempotency-Key", PATTERN_TEXTS[IDEMPOTENCY_PATTERN].replace("255", str(most)))], "a header")
    return key
