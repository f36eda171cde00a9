"""What is changed from a page: first what is meant, then what would come of it, then the deed.

The last form carries what was shown: how the thing stood, and whom the dry run harms. If that is not so any more, nothing is
done, and what would come of it now is shown instead. So two operators, or one and a queue that moved on meanwhile, never do
what nobody has seen.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flask import Response
from pydantic import ValidationError

from app.api.permissions import require_visible
from app.dashboard import usage_bars
from app.dashboard.page_context import PageContext
from app.domain.declaration import Declaration, DeclaredPolicy, DeclaredPool, export_pool
from app.domain.declaration_diff import plan_declaration
from app.domain.dry_run import ChangeOutcome
from app.domain.errors import Conflict, Refusal
from app.domain.models import Policy, Pool, Request
from app.domain.names import component_id
from app.domain.specs import PolicySpec, PoolUpdate
from app.domain.states import FINAL_STATES, RequestState
from app.domain.validation_errors import field_errors

LISTED_REQUESTS = 20
"""Requests of one kind that are named."""
PROFILES = ("batch", "training", "service", "sensitive", "interactive")
OUTDATED = "Things are not as they were shown to you any more, so nothing was done. This is what would come of it now."


@dataclass(frozen=True, slots=True)
class Action:
    """Something that is to be done: how its object stands, what would come of it, and how it is done."""

    title: str
    button: str
    read_state: Callable[[], str]
    """How the object stands, as far as it matters."""
    back_path: str
    apply: Callable[[], object]
    message_key: str
    dry_run: Callable[[], ChangeOutcome] | None
    """None: the visitor may do it, and not see what it means for others."""
    lines: tuple[str, ...] = ()
    """What differs, as a plan would say it."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """What the last form says again."""


def cancel_request(context: PageContext, request: str) -> Response:
    """Have a waiter leave the queue."""
    asked = _visible_request(context, request)
    if asked.status is not RequestState.QUEUED:
        raise Conflict("not_queued", f"request {request} does not wait any more: it is {asked.status}")
    services, workspace = context.services, context.workspace
    deed = Action(
        title=f"Cancel request {request}",
        button="Cancel the request",
        read_state=lambda: _request_state(services.requests.get(workspace, request)),
        back_path=f"/requests/{request}",
        apply=lambda: services.requests.cancel(workspace, request),
        message_key="cancelled",
        dry_run=None if context.user.token.is_limited else lambda: services.dry_run.cancel(workspace, request),
        lines=(_summary(asked), "it leaves the queue, and is not run"),
    )
    return _confirm_or_apply(context, deed, request)


def drop_request(context: PageContext, request: str) -> Response:
    """End a request whatever its state."""
    asked = _visible_request(context, request)
    if asked.status in FINAL_STATES:
        raise Conflict("ended", f"request {request} has ended already: it is {asked.status}")
    services, workspace = context.services, context.workspace
    holds = asked.fence is not None and asked.status is not RequestState.QUEUED
    taken = "its units are taken back at once, and its holder learns it from its next heartbeat"
    deed = Action(
        title=f"Drop request {request}",
        button="Drop the request",
        read_state=lambda: _request_state(services.requests.get(workspace, request)),
        back_path=f"/requests/{request}",
        apply=lambda: services.requests.drop(workspace, request),
        message_key="dropped",
        dry_run=lambda: services.dry_run.drop(workspace, request),
        lines=(_summary(asked), taken if holds else "it leaves the queue"),
    )
    return _confirm_or_apply(context, deed, request)


def resize_pool(context: PageContext, pool: str) -> Response:
    """Change the capacity of a pool."""
    view = context.services.pools.get(context.workspace, pool)
    given = {key: context.http_request.form.get(f"capacity.{key}", str(units)) for key, units in sorted(view.capacity.items())}
    if context.http_request.method == "GET":
        return _resize_form(context, view, given)
    try:
        capacity = _parse_numbers(given)
        change = PoolUpdate(capacity={key: units for key, units in capacity.items() if units != view.capacity[key]})
        lines = _change_lines(view, export_pool(view).model_copy(update={"capacity": {key: at for key, at in capacity.items() if at}}))
        services, workspace = context.services, context.workspace
        deed = Action(
            title=f"Resize pool {pool}",
            button="Change the pool",
            read_state=lambda: json.dumps(dict(services.pools.get(workspace, pool).capacity), sort_keys=True),
            back_path=f"/pools/{pool}",
            apply=lambda: services.pools.update(workspace, pool, change),
            message_key="resized",
            dry_run=lambda: services.dry_run.update_pool(workspace, pool, change),
            lines=lines,
            fields={f"capacity.{key}": text for key, text in given.items()},
        )
        return _confirm_or_apply(context, deed)
    except (Refusal, ValidationError, ValueError) as wrong:
        return _resize_form(context, view, given, _fault_text(wrong))


def change_policy(context: PageContext, pool: str, kind: str, component: str) -> Response:
    """Change a policy."""
    view, now = context.services.pools.get_policy(context.workspace, pool, component, kind)
    whole, present = _declared_policy(view, now)
    given = _policy_fields(view, present, context.http_request.form)
    if context.http_request.method == "GET":
        return _policy_form(context, view, present, given)
    try:
        wanted = _policy_of_form(view, present, given)
        rest = [wanted if one.name == wanted.name else one for one in whole.policies]
        ask = PolicySpec.model_validate(wanted.model_dump(exclude={"component", "component_type"}))
        services, workspace = context.services, context.workspace
        deed = Action(
            title=f"Change the policy of {present.name} in {pool}",
            button="Change the policy",
            read_state=lambda: _declared_policy(*services.pools.get_policy(workspace, pool, component, kind))[1].model_dump_json(),
            back_path=f"/pools/{pool}",
            apply=lambda: services.pools.set_policy(workspace, pool, component, ask, kind),
            message_key="policy",
            dry_run=lambda: services.dry_run.set_policy(workspace, pool, wanted),
            lines=_change_lines(view, whole.model_copy(update={"policies": rest})),
            fields=given,
        )
        return _confirm_or_apply(context, deed)
    except (Refusal, ValidationError, ValueError) as wrong:
        return _policy_form(context, view, present, given, _fault_text(wrong))


# ---- the steps


def _confirm_or_apply(context: PageContext, deed: Action, own: str = "") -> Response:
    """Show what would come of it; or do it, if that was shown and still is so."""
    before, trial = deed.read_state(), deed.dry_run() if deed.dry_run else None
    seal = _state_digest(deed, before, trial, own)
    if context.http_request.form.get("shown") is None:
        return _confirm_page(context, deed, trial, seal, own)
    if context.http_request.form["shown"] != seal or deed.read_state() != before:  # trying it out took its time
        return _confirm_page(context, deed, trial, seal, own, OUTDATED, 409)
    deed.apply()
    return context.redirect(deed.back_path, done=deed.message_key)


def _confirm_page(
    context: PageContext, deed: Action, trial: ChangeOutcome | None, seal: str, own: str, fault: str | None = None, status: int = 200
) -> Response:
    effects = [] if trial is None else [(name, why, ids[:LISTED_REQUESTS], len(ids)) for name, why, ids in _effects(trial, own) if ids]
    return context.render_page("confirm.html", status, deed=deed, effects=effects, tried=trial is not None, seal=seal, fault=fault)


def _effects(trial: ChangeOutcome, own: str) -> list[tuple[str, str, tuple[str, ...]]]:
    ended = tuple(one for one in trial.ended if one != own)
    return [
        ("granted", "would be granted", trial.granted),
        ("preempted", "would have to leave", trial.preempted),
        ("reprieved", "would be called back, and keep their units", trial.reprieved),
        ("rejected", "could never be granted any more, and would be rejected", trial.rejected),
        ("ended", "would be ended", ended),
        ("preemptible", "would not lie in its share any more, and could be preempted", trial.preemptible),
    ]


def _state_digest(deed: Action, before: str, trial: ChangeOutcome | None, own: str) -> str:
    """What was shown, as far as it must not change: how the object stands, what is done to it, and whom it harms."""
    harmed = [] if trial is None else sorted(one for one in (*trial.preempted, *trial.rejected, *trial.ended) if one != own)
    said = json.dumps([deed.title, before, deed.lines, harmed])
    return hashlib.sha256(said.encode()).hexdigest()


def _request_state(asked: Request) -> str:
    return f"{asked.status} {asked.fence}"


def _declared_policy(view: Pool, now: Policy) -> tuple[DeclaredPool, DeclaredPolicy]:
    """A pool and a policy of it, as they would be declared."""
    whole = export_pool(view)
    (present,) = (one for one in whole.policies if one.name == now.name)
    return whole, present


def _visible_request(context: PageContext, request: str) -> Request:
    asked = context.services.requests.get(context.workspace, request)
    require_visible(context.user.token, asked)
    return asked


def _summary(asked: Request) -> str:
    held = ", ".join(f"{units} {key}" for key, units in asked.resources.items() if key != "step_run") or "a slot"
    return f"{component_id(asked.component_type, asked.component)}, {asked.status}: {held}"


def _change_lines(before: Pool, after: DeclaredPool) -> tuple[str, ...]:
    """What a change would be called in a plan; ValueError if there is none."""
    plan = plan_declaration({before.name: export_pool(before)}, Declaration.model_construct(pools=[after]))
    if not plan.changes:
        raise ValueError("this is as it is already: nothing would be changed")
    return tuple(line for change in plan.changes for line in change.lines)


def _fault_text(wrong: Exception) -> str:
    if isinstance(wrong, ValidationError):
        return "; ".join(f"{name} {reason}" for name, reason in field_errors(wrong))
    return str(wrong)


# ---- the forms


def _parse_numbers(given: Mapping[str, str]) -> dict[str, int]:
    """Whole numbers, as they were written; what is empty is left out."""
    found = {}
    for name, text in given.items():
        text = text.strip().replace(",", "")
        if text and not (text.isascii() and text.isdecimal() and len(text) <= 16):
            raise ValueError(f"{name} has to be a whole number")
        if text:
            found[name] = int(text)
    return found


def _resize_form(context: PageContext, view: Pool, given: Mapping[str, str], fault: str | None = None) -> Response:
    return context.render_page("resize.html", 422 if fault else 200, pool=view, bars=usage_bars.pool_bars(view), given=given, fault=fault)


def _policy_fields(view: Pool, present: DeclaredPolicy, form: Mapping[str, str]) -> dict[str, str]:
    """What the form says: what was sent, else how the policy is."""
    now = {
        "priority": str(present.priority),
        "weight": str(present.weight),
        "group": present.group or "",
        "profile": present.profile,
    }
    for key in sorted(view.capacity):
        for of, amounts in (("reserved", present.reserved), ("limit", present.limit)):
            now[f"{of}.{key}"] = str(amounts[key]) if key in amounts else ""
    return {name: form.get(name, text) for name, text in now.items()}


def _policy_of_form(view: Pool, present: DeclaredPolicy, given: Mapping[str, str]) -> DeclaredPolicy:
    """The policy that is meant; its settings stay."""
    named = {of: {key: given[f"{of}.{key}"] for key in view.capacity} for of in ("reserved", "limit")}
    plain = _parse_numbers({"priority": given["priority"], "weight": given["weight"]})
    said: dict[str, Any] = {
        **present.model_dump(exclude_unset=True),
        "priority": plain.get("priority", 0),
        "weight": plain.get("weight", 1),
        "group": given["group"] or None,
        "profile": given["profile"],
        "reserved": {key: units for key, units in _parse_numbers(named["reserved"]).items() if units},
        "limit": _parse_numbers(named["limit"]),
    }
    return DeclaredPolicy.model_validate(said)


def _policy_form(
    context: PageContext, view: Pool, present: DeclaredPolicy, given: Mapping[str, str], fault: str | None = None
) -> Response:
    what = {"groups": sorted(view.groups), "profiles": PROFILES, "keys": sorted(view.capacity)}
    return context.render_page("policy.html", 422 if fault else 200, pool=view, policy=present, given=given, fault=fault, **what)
