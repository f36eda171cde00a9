"""Explanations and estimates: the reason why a request waits, and its likely start."""

from __future__ import annotations

from app.api.component_access import visible_request
from app.api.routing import Call
from app.api.schemas.explain import EstimateResponse, ExplanationResponse
from app.api.schemas.inputs import EstimateQuery


def explain_request(call: Call, request: str) -> ExplanationResponse:
    """Explain why a request waits: the constraint, the holders of the units, the possible victims, the likely start.

    The explanation comes from the same rules that decide about grants and preemptions.
    """
    visible_request(call, call.services.requests.get(call.workspace, request))
    return ExplanationResponse.of(call.services.explain.explain(call.workspace, request), call.token)


def get_estimate(call: Call, request: str, query: EstimateQuery) -> EstimateResponse:
    """Return the likely start of a waiting request in each pool in whose queue it is. It is computed every few seconds.

    The call is cheap. With `reasons` the answer also has a short reason for each pool, which takes one more read of the queue.
    """
    waiter = visible_request(call, call.services.requests.get(call.workspace, request))
    explainer = call.services.explain
    with_ids = not call.token.is_limited
    reasons = explainer.list_wait_reasons(call.workspace, request, with_ids=with_ids) if query.reasons else {}
    return EstimateResponse.of(waiter, explainer.list_estimates(call.workspace, waiter), reasons)
