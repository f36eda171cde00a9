"""Why a request waits, and when it may start."""

from __future__ import annotations

from app.api.component_access import visible_request
from app.api.routing import Call
from app.api.schemas.explain import EstimateResponse, ExplanationResponse
from app.api.schemas.inputs import EstimateQuery


def explain_request(call: Call, request: str) -> ExplanationResponse:
    """Why a request waits: what keeps it, who holds the units, who could be stopped for it, and when it may start.

    What is said is what the rules that decide say.
    """
    visible_request(call, call.services.requests.get(call.workspace, request))
    return ExplanationResponse.of(call.services.explain.explain(call.workspace, request), call.token)


def get_estimate(call: Call, request: str, query: EstimateQuery) -> EstimateResponse:
    """When a request that waits may start, in each pool in whose queue it stands; worked out every few seconds.

    It costs little. With `reasons` it also says in a few words why the request waits, which costs a look at its place.
    """
    waiter = visible_request(call, call.services.requests.get(call.workspace, request))
    explainer = call.services.explain
    with_ids = not call.token.is_limited
    reasons = explainer.list_wait_reasons(call.workspace, request, with_ids=with_ids) if query.reasons else {}
    return EstimateResponse.of(waiter, explainer.list_estimates(call.workspace, waiter), reasons)
