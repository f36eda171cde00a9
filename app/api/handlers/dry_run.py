"""Dry runs: the outcome of a submit or a change, without doing it."""

from __future__ import annotations

from app.api.component_access import forbidden_component, require_class_permitted, roles_for_all_components
from app.api.errors import HttpRefusal
from app.api.routing import Call
from app.api.schemas.declarations import DeclarationPlanResponse
from app.api.schemas.dry_run import LONGEST_LIST, DryRunBody, DryRunResponse
from app.api.schemas.explain import PoolExplanationResponse
from app.api.schemas.over_limit import OverLimitResponse
from app.api.schemas.requests import ReasonResponse
from app.domain.declaration import Declaration
from app.domain.dry_run import ChangeOutcome, SubmitOutcome
from app.domain.specs import PoolUpdate
from app.domain.tokens import Permission, Token


def dry_run(call: Call, body: DryRunBody) -> DryRunResponse:
    """Try a submit, a change of pools, or the end of a request on a workspace copy, and return the outcome.

    The same code runs as for the real call. The workspace itself is not changed.
    """
    if body.request is not None:
        kind, component = body.request.component_type, body.request.component
        if not call.token.can_see(kind, component):
            raise forbidden_component(kind, component)
        require_class_permitted(call, body.request)
        with call.services.dry_run_shares.turn(call.token.share_holder):
            outcome = call.services.dry_run.submit(call.workspace, body.request, call.token.as_limited)
        return _submit_response(outcome, call.token)
    if call.token.is_limited:
        detail = "this token is for single components, and may try out their requests only"
        raise HttpRefusal(403, "not_permitted", detail, hint=f"use a token of {roles_for_all_components(Permission.READ)}")
    with call.services.dry_run_shares.turn(call.token.share_holder):
        change = _dry_run_change(call, body)
    return _change_response(change, call.token)


def _dry_run_change(call: Call, body: DryRunBody) -> ChangeOutcome:
    service, workspace = call.services.dry_run, call.workspace
    if body.pool is not None:
        change = PoolUpdate.model_validate(body.pool.model_dump(exclude={"name"}, exclude_unset=True))
        return service.update_pool(workspace, body.pool.name, change)
    if body.policy is not None:
        return service.set_policy(workspace, body.policy.pool, body.policy)
    if body.group is not None:
        return service.set_group(workspace, body.group.pool, body.group)
    if body.pools is not None:
        return service.apply(workspace, Declaration(pools=body.pools), prune=body.prune)
    if body.cancel is not None:
        return service.cancel(workspace, body.cancel)
    assert body.drop is not None
    return service.drop(workspace, body.drop)


def _submit_response(outcome: SubmitOutcome, token: Token) -> DryRunResponse:
    victims = [request for request, component in outcome.victims if token.can_see(*component.split("/", 1))]
    return DryRunResponse(
        outcome=outcome.outcome,
        pool=outcome.pool,
        victims=victims,
        reason=ReasonResponse.of(outcome.request.reason) if outcome.request.reason else None,
        verdicts=[PoolExplanationResponse.of(view, token) for view in outcome.views],
        counts={"victims": len(outcome.victims)},
    )


def _change_response(outcome: ChangeOutcome, token: Token) -> DryRunResponse:
    lists = {
        "victims": outcome.preempted,
        "granted": outcome.granted,
        "preemptible": outcome.preemptible,
        "reprieved": outcome.reprieved,
        "rejected": outcome.rejected,
        "ended": outcome.ended,
    }
    return DryRunResponse.model_validate(
        {
            "outcome": "changes" if any(lists.values()) or outcome.over_limit else "nothing",
            "over_limit": [OverLimitResponse.of(use, token) for use in outcome.over_limit],
            **{name: requests[:LONGEST_LIST] for name, requests in lists.items()},
            "counts": {name: len(requests) for name, requests in lists.items()},
            "plan": outcome.plan and DeclarationPlanResponse.of(outcome.plan, token),
        }
    )
