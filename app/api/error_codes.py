"""The table of all error codes of the HTTP API: statuses, meaning and remedy, as public text.

The OpenAPI document and the reference page have the codes from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.domain.dry_run import DRY_RUN_REASONS
from app.domain.errors import UNAVAILABLE_REASONS


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """A row of the table."""

    statuses: tuple[int, ...]
    meaning: str
    remedy: str


_ABSENT = (404, 422)
"""404 if the path names the absent object, 422 if a declaration names it."""
_NAME = "Check the name; a GET of the collection lists the names."
_LATER = "Repeat the call after `Retry-After`."
_FIX = "Correct the values. `detail` names the account, the key and the numbers."
_LIMIT = "Wait until some requests end, or raise the limit that `limit_of` and `limit_name` name."
_COUNT = "Delete some, or raise the limit that `limit_of` and `limit_name` name."
_LESS = "Send less: see [limits](http.md#limits)."

ERROR_CODES: Mapping[str, ErrorCode] = {
    "malformed": ErrorCode((400,), "The input is malformed. `errors` names every wrong field.", "Correct the fields."),
    "no_token": ErrorCode((401,), "The call has no token, and one is needed.", "Send `Authorization: Bearer TOKEN`."),
    "unknown_token": ErrorCode((401,), "The token is unknown, expired or revoked.", "Create one: `poolkeeperd token create`."),
    "not_permitted": ErrorCode(
        (403,), "The role of the token lacks the permission.", "Use a token of a role that `hint` names."
    ),
    "other_workspace": ErrorCode(
        (403,), "The token is not for this workspace.", "Correct `Poolkeeper-Workspace`, or use another token."
    ),
    "other_component": ErrorCode(
        (403,), "The token is not for this component.", "Use a token that lists the component, or a role without such a list."
    ),
    "foreign_host": ErrorCode(
        (403,), "Without tokens only calls from this machine are answered.", "Call localhost, or create a token."
    ),
    "foreign_form": ErrorCode((403,), "A form of the dashboard comes from another page.", "Load the page again."),
    "no_such_route": ErrorCode((404,), "The path names no route.", "Check the URL against the [routes](http.md#routes)."),
    "no_such_pool": ErrorCode(_ABSENT, "The pool does not exist.", _NAME),
    "no_such_group": ErrorCode(_ABSENT, "The group does not exist in the pool.", _NAME),
    "no_such_policy": ErrorCode((404,), "The component has no policy in the pool.", _NAME),
    "no_such_request": ErrorCode(
        (404,), "The request does not exist, or its retention is over.", "Check the id; see the setting `retention_s`."
    ),
    "no_such_task": ErrorCode((404,), "The task does not exist, or it is over.", "Check the id."),
    "method_not_allowed": ErrorCode((405,), "The route does not have this method.", "Use a method of the header `Allow`."),
    "pool_exists": ErrorCode((409,), "A pool with this name exists.", "Choose another name, or change the pool."),
    "task_exists": ErrorCode((409,), "A task with this id exists and is not over.", "Choose another id."),
    "id_taken": ErrorCode((409,), "The id belongs to another request.", "Choose another id, or let the service make it."),
    "idempotency_conflict": ErrorCode(
        (409,), "The idempotency key was used with another body.", "Use a new key for each different call."
    ),
    "in_use": ErrorCode((409,), "The object has waiters, allocations or children.", "Wait for them, cancel or release them."),
    "key_in_use": ErrorCode(
        (409,), "A resource key cannot be removed while units of it are held.", "Wait until the allocations end."
    ),
    "moves_in_use": ErrorCode((409,), "An account cannot move while it holds units.", "Wait until its allocations end."),
    "breaks_policy": ErrorCode((409,), "The capacity would be below what an account reserves or is limited to.", _FIX),
    "breaks_promises": ErrorCode((409,), "The capacity would be below the sum of the reserved units.", _FIX),
    "changed_meanwhile": ErrorCode((409,), "Other calls keep changing these pools. Nothing was changed.", "Repeat the call."),
    "stale_fence": ErrorCode(
        (409,),
        "The fence is not that of the present allocation.",
        "Stop the work at once: the units may belong to another request.",
    ),
    "already_started": ErrorCode((409,), "Another runner began the request under this fence.", "Do not start the work."),
    "not_queued": ErrorCode((409,), "Only a queued request can be cancelled.", "Release the request under its fence."),
    "not_leaving": ErrorCode((409,), "The request was not told to leave.", "Release it as `succeeded` or `failed`."),
    "not_ended": ErrorCode((409,), "The task is not over.", "Wait for its end."),
    "no_task": ErrorCode((409,), "The request is not that of a task.", "Use another outcome than `lost`."),
    "body_too_large": ErrorCode((413,), "The body has too many bytes.", _LESS),
    "too_many_members": ErrorCode((413,), "The body has too many members.", _LESS),
    "not_json": ErrorCode((415,), "The body is not declared as JSON.", "Send `Content-Type: application/json`."),
    "no_form": ErrorCode((415,), "A form of the dashboard has the wrong media type.", "Send it as a browser does."),
    "refused": ErrorCode(
        (416,), "The range is beyond the end of a file of `/docs`.", "Repeat the call without the header `Range`."
    ),
    "unknown_key": ErrorCode((422,), "An account names a key that the pool does not have.", _FIX),
    "unknown_threshold_key": ErrorCode((422,), "A threshold names a key that the pool does not have.", _FIX),
    "reserved_beyond_limit": ErrorCode((422,), "An account reserves more than its limit.", _FIX),
    "limit_beyond_capacity": ErrorCode((422,), "A limit is higher than the capacity of the pool.", _FIX),
    "overpromised": ErrorCode((422,), "The children of an account reserve more than it has.", _FIX),
    "reserved_below_children": ErrorCode((422,), "An account reserves less than its children.", _FIX),
    "circle": ErrorCode((422,), "A group would be above itself.", "Choose another parent."),
    "too_deep": ErrorCode((422,), "Groups are nested too deep.", "Choose a parent that is higher."),
    "no_capacity_left": ErrorCode((422,), "A pool needs at least one key.", "Keep one key, or delete the pool."),
    "too_many_keys": ErrorCode((422,), "The pool would have too many keys.", "Use fewer keys."),
    "too_many_changes": ErrorCode((422,), "The declaration changes too much at once.", "Apply it in parts."),
    "no_broker": ErrorCode((422,), "The workspace has no broker for tasks.", "Name one in the file of the setting `brokers`."),
    "too_many_requests_live": ErrorCode(
        (422,), "The workspace has too many requests for a dry run.", "Try it when fewer requests wait or hold units."
    ),
    "too_many_component_limits": ErrorCode((422,), "Too many components would have limits of their own.", "Remove some."),
    "too_many_requests": ErrorCode((429,), "The token calls too often.", _LATER),
    "token_share_used": ErrorCode((429,), "The token holds its share of the wait slots or of the dry-run time.", _LATER),
    "too_many_waiting": ErrorCode((429,), "The number of waiting requests is at its limit.", _LIMIT),
    "too_many_shapes": ErrorCode((429,), "The number of different shapes that wait is at its limit.", _LIMIT),
    "too_many_running": ErrorCode((429,), "The number of allocations is at its limit.", _LIMIT),
    "too_many_pools": ErrorCode((429,), "The number of pools is at its limit.", _COUNT),
    "too_many_policies": ErrorCode((429,), "The number of policies is at its limit.", _COUNT),
    "too_many_bytes": ErrorCode((429,), "The bytes of kept request bodies are at their limit.", _LIMIT),
    "too_many_tenants": ErrorCode(
        (429,),
        "A policy template has `template_max` instances.",
        "Wait until an idle instance is deleted, or raise `template_max`.",
    ),
    "internal_error": ErrorCode((500,), "The service has a bug.", "Look for `request_id` in the log, and report it."),
    "too_many_waiters": ErrorCode((503,), "Every wait slot of the process is taken.", _LATER),
    **{
        f"redis_{reason}": ErrorCode((503,), f"Redis {text}.", "Repeat the call; if it lasts, look at Redis.")
        for reason, text in UNAVAILABLE_REASONS.items()
    },
    **{f"dry_run_{reason}": ErrorCode((503,), f"No dry run now: {text}.", _LATER) for reason, text in DRY_RUN_REASONS.items()},
}
"""Code → row, in the order of the statuses."""
