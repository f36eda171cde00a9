"""Changes made from a page, in three steps: the form, the dry run, and the change itself.

The last form carries a digest of the page: the state of the object, and the requests that the dry run harms. If the digest has
changed meanwhile, nothing is done, and the page shows the new result of the dry run instead.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flask import Response
from pydantic import ValidationError

from app.api.component_access import require_visible
from app.dashboard import filters, usage_bars
from app.dashboard.mentioned_requests import read_mentioned
from app.dashboard.page_context import PageContext
from app.domain.declaration import Declaration, PolicyDeclaration, PoolDeclaration, export_pool
from app.domain.declaration_diff import plan_declaration
from app.domain.dry_run import ChangeOutcome
from app.domain.errors import Conflict, Refusal
from app.domain.models import Policy, Pool, Request
from app.domain.names import component_id
from app.domain.request_origin import short_id
from app.domain.specs import PolicySpec, PoolUpdate
from app.domain.states import FINAL_STATES, RequestState
from app.domain.validation_errors import field_errors

LISTED_REQUESTS = 20
"""The most requests of one kind that are listed."""
PROFILES = ("batch", "training", "service", "sensitive", "interactive")
OUTDATED = "The workspace has changed since this page was shown, so nothing was done. This is what would happen now."


@dataclass(frozen=True, slots=True)
class Action:
    """A change that waits for confirmation: its texts, its dry run, and the function that applies it."""

    title: str
    button: str
    read_state: Callable[[], str]
    """A function that returns the state of the object, as far as the change depends on it."""
    back_path: str
    apply: Callable[[], object]
    message_key: str
    dry_run: Callable[[], ChangeOutcome] | None
    """A function that runs the change dry; None: the user may make it, but not see its effect on other requests."""
    stops_work: bool = False
    """True if the change itself ends an allocation, apart from its effect on other requests."""
    lines: tuple[str, ...] = ()
    """The differences, worded as in the plan of a declaration."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """The fields of the form, which the form of confirmation repeats."""


def cancel_request(context: PageContext, request: str) -> Response:
    """Cancel a queued request."""
    target = _visible_request(context, request)
    if target.status is not RequestState.QUEUED:
        raise Conflict("not_queued", f"request {request} does not wait any more: it is {target.status}")
    services, workspace = context.services, context.workspace
    action = Action(
        title=f"Cancel request {short_id(request)}",
        button="Cancel the request",
        read_state=lambda: _request_state(services.requests.get(workspace, request)),
        back_path=f"/requests/{request}",
        apply=lambda: services.requests.cancel(workspace, request),
        message_key="cancelled",
        dry_run=None if context.user.token.is_limited else lambda: services.dry_run.cancel(workspace, request),
        lines=(*_summary(target), "it leaves the queue and will not run"),
    )
    return _confirm_or_apply(context, action, request)


def drop_request(context: PageContext, request: str) -> Response:
    """Drop a request in any state."""
    target = _visible_request(context, request)
    if target.status in FINAL_STATES:
        raise Conflict("ended", f"request {request} has ended already: it is {target.status}")
    services, workspace = context.services, context.workspace
    holds = target.fence is not None and target.status is not RequestState.QUEUED
    consequence = "its units are taken back at once, and its next heartbeat is refused"
    action = Action(
        title=f"Drop request {short_id(request)}",
        button="Drop the request",
        read_state=lambda: _request_state(services.requests.get(workspace, request)),
        back_path=f"/requests/{request}",
        apply=lambda: services.requests.drop(workspace, request),
        message_key="dropped",
        dry_run=lambda: services.dry_run.drop(workspace, request),
        stops_work=holds,
        lines=(*_summary(target), consequence if holds else "it leaves the queue"),
    )
    return _confirm_or_apply(context, action, request)


def resize_pool(context: PageContext, pool: str) -> Response:
    """Change the capacity of a pool."""
    view = context.services.pools.get(context.workspace, pool)
    fields = {key: context.http_request.form.get(f"capacity.{key}", str(units)) for key, units in sorted(view.capacity.items())}
    if context.http_request.method == "GET":
        return _resize_form(context, view, fields)
    try:
        capacity = _parse_numbers(fields)
        change = PoolUpdate(capacity={key: units for key, units in capacity.items() if units != view.capacity[key]})
        lines = _change_lines(
            view, export_pool(view).model_copy(update={"capacity": {key: units for key, units in capacity.items() if units}})
        )
        services, workspace = context.services, context.workspace
        action = Action(
            title=f"Resize pool {pool}",
            button="Change the pool",
            read_state=lambda: json.dumps(dict(services.pools.get(workspace, pool).capacity), sort_keys=True),
            back_path=f"/pools/{pool}",
            apply=lambda: services.pools.update(workspace, pool, change),
            message_key="resized",
            dry_run=lambda: services.dry_run.update_pool(workspace, pool, change),
            lines=lines,
            fields={f"capacity.{key}": text for key, text in fields.items()},
        )
        return _confirm_or_apply(context, action)
    except (Refusal, ValidationError, ValueError) as error:
        return _resize_form(context, view, fields, _fault_text(error))


def change_policy(context: PageContext, pool: str, kind: str, component: str) -> Response:
    """Change a policy."""
    view, policy = context.services.pools.get_policy(context.workspace, pool, component, kind)
    if policy.template:
        kind, _, component = policy.template.partition("/")
        view, policy = context.services.pools.get_policy(context.workspace, pool, component, kind)
    whole, present = _declared_policy(view, policy)
    fields = _policy_fields(view, present, context.http_request.form)
    if context.http_request.method == "GET":
        return _policy_form(context, view, present, fields)
    try:
        changed = _policy_of_form(view, present, fields)
        policies = [changed if policy.name == changed.name else policy for policy in whole.policies]
        spec = PolicySpec.model_validate(changed.model_dump(exclude={"component", "component_type"}))
        services, workspace = context.services, context.workspace
        action = Action(
            title=f"Change the policy of {present.name} in {pool}",
            button="Change the policy",
            read_state=lambda: _declared_policy(*services.pools.get_policy(workspace, pool, component, kind))[
                1
            ].model_dump_json(),
            back_path=f"/pools/{pool}",
            apply=lambda: services.pools.set_policy(workspace, pool, component, spec, kind),
            message_key="policy",
            dry_run=lambda: services.dry_run.set_policy(workspace, pool, changed),
            lines=_change_lines(view, whole.model_copy(update={"policies": policies})),
            fields=fields,
        )
        return _confirm_or_apply(context, action)
    except (Refusal, ValidationError, ValueError) as error:
        return _policy_form(context, view, present, fields, _fault_text(error))


# ---- the steps


def _confirm_or_apply(context: PageContext, action: Action, own: str = "") -> Response:
    """Apply the action if the page showed its present effect, else show the effect."""
    before, outcome = action.read_state(), None
    if action.dry_run:
        with context.services.dry_run_shares.turn(context.user.token.share_holder):
            outcome = action.dry_run()
    digest = _state_digest(action, before, outcome, own)
    if context.http_request.form.get("shown") is None:
        return _confirm_page(context, action, outcome, digest, own)
    if context.http_request.form["shown"] != digest or action.read_state() != before:  # the dry run has taken a while
        return _confirm_page(context, action, outcome, digest, own, OUTDATED, 409)
    action.apply()
    return context.redirect(action.back_path, done=action.message_key)


def _confirm_page(
    context: PageContext,
    action: Action,
    outcome: ChangeOutcome | None,
    digest: str,
    own: str,
    fault: str | None = None,
    status: int = 200,
) -> Response:
    effects = (
        []
        if outcome is None
        else [(name, why, ids[:LISTED_REQUESTS], len(ids)) for name, why, ids in _effects(outcome, own) if ids]
    )
    victims = [request for use in outcome.over_limit for request, _ in use.victims] if outcome else []
    stopped = (*outcome.preempted, *outcome.ended, *victims) if outcome else ()
    return context.render_page(
        "confirm.html",
        status,
        action=action,
        effects=effects,
        over_limit=outcome.over_limit if outcome else (),
        mentioned=read_mentioned(context, [*(request for _, _, ids, _ in effects for request in ids), *victims]),
        has_dry_run=outcome is not None,
        stops_work=action.stops_work or any(request != own for request in stopped),
        digest=digest,
        fault=fault,
    )


def _effects(outcome: ChangeOutcome, own: str) -> list[tuple[str, str, tuple[str, ...]]]:
    ended = tuple(request for request in outcome.ended if request != own)
    return [
        ("granted", "would be granted", outcome.granted),
        ("preempted", "would have to leave", outcome.preempted),
        ("reprieved", "would be reprieved, and keep their units", outcome.reprieved),
        ("rejected", "could never be granted any more, and would be rejected", outcome.rejected),
        ("ended", "would be ended", ended),
        ("preemptible", "would lie beyond their share, and could be preempted", outcome.preemptible),
    ]


def _state_digest(action: Action, before: str, outcome: ChangeOutcome | None, own: str) -> str:
    """Return a digest of everything that must not change before the confirmation: state, change and harmed requests."""
    harmed: tuple[str, ...] = ()
    if outcome is not None:
        evicted = (request for use in outcome.over_limit for request, _ in use.victims)
        harmed = (*outcome.preempted, *outcome.rejected, *outcome.ended, *evicted)
    text = json.dumps([action.title, before, action.lines, sorted(request for request in harmed if request != own)])
    return hashlib.sha256(text.encode()).hexdigest()


def _request_state(request: Request) -> str:
    return f"{request.id} {request.status} {request.fence}"


def _declared_policy(pool: Pool, policy: Policy) -> tuple[PoolDeclaration, PolicyDeclaration]:
    """Return the declarations of a pool and of one of its policies."""
    whole = export_pool(pool)
    (present,) = (declared for declared in whole.policies if declared.name == policy.name)
    return whole, present


def _visible_request(context: PageContext, request: str) -> Request:
    target = context.services.requests.get(context.workspace, request)
    require_visible(context.user.token, target)
    return target


def _summary(request: Request) -> tuple[str, ...]:
    """Return lines that identify a request: its component, status and amounts, its name, and its owner."""
    component = filters.component(component_id(request.component_type, request.component))
    title, owner = filters.title(request), filters.owner(request)
    lines = (
        f"{component}, {request.status}: {filters.units(request.resources)}",
        title and f"name: {title}",
        owner and f"owner: {owner}",
    )
    return tuple(filter(None, lines))


def _change_lines(before: Pool, after: PoolDeclaration) -> tuple[str, ...]:
    """Return the lines of the plan of a change. Raise ValueError if nothing changes."""
    plan = plan_declaration({before.name: export_pool(before)}, Declaration.model_construct(pools=[after]))
    if not plan.changes:
        raise ValueError("these are the present values: nothing would change")
    return tuple(line for change in plan.changes for line in change.lines)


def _fault_text(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(f"{name} {reason}" for name, reason in field_errors(error))
    return str(error)


# ---- the forms


def _parse_numbers(fields: Mapping[str, str]) -> dict[str, int]:
    """Return the whole numbers of the fields, without the empty ones."""
    numbers = {}
    for name, text in fields.items():
        text = text.strip().replace(",", "")
        if text and not (text.isascii() and text.isdecimal() and len(text) <= 16):
            raise ValueError(f"{name} has to be a whole number")
        if text:
            numbers[name] = int(text)
    return numbers


def _resize_form(context: PageContext, view: Pool, fields: Mapping[str, str], fault: str | None = None) -> Response:
    return context.render_page(
        "resize.html", 422 if fault else 200, pool=view, bars=usage_bars.pool_bars(view), fields=fields, fault=fault
    )


def _policy_fields(view: Pool, present: PolicyDeclaration, form: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of the form: those that were sent, else those of the policy."""
    values = {
        "priority": str(present.priority),
        "weight": str(present.weight),
        "group": present.group or "",
        "profile": present.profile,
    }
    for key in sorted(view.capacity):
        for quota, amounts in (("reserved", present.reserved), ("limit", present.limit)):
            values[f"{quota}.{key}"] = str(amounts[key]) if key in amounts else ""
    return {name: form.get(name, text) for name, text in values.items()}


def _policy_of_form(view: Pool, present: PolicyDeclaration, fields: Mapping[str, str]) -> PolicyDeclaration:
    """Return the policy of the form; its settings stay."""
    quotas = {quota: {key: fields[f"{quota}.{key}"] for key in view.capacity} for quota in ("reserved", "limit")}
    numbers = _parse_numbers({"priority": fields["priority"], "weight": fields["weight"]})
    values: dict[str, Any] = {
        **present.model_dump(exclude_unset=True),
        "priority": numbers.get("priority", 0),
        "weight": numbers.get("weight", 1),
        "group": fields["group"] or None,
        "profile": fields["profile"],
        "reserved": {key: units for key, units in _parse_numbers(quotas["reserved"]).items() if units},
        "limit": _parse_numbers(quotas["limit"]),
    }
    return PolicyDeclaration.model_validate(values)


def _policy_form(
    context: PageContext, view: Pool, present: PolicyDeclaration, fields: Mapping[str, str], fault: str | None = None
) -> Response:
    choices = {"groups": sorted(view.groups), "profiles": PROFILES, "keys": sorted(view.capacity)}
    return context.render_page(
        "policy.html", 422 if fault else 200, pool=view, policy=present, fields=fields, fault=fault, **choices
    )
