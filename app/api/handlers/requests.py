"""Requests: submit, wait, keep the allocation, release."""

from __future__ import annotations

import time
from dataclasses import replace

from pydantic import ValidationError

from app.api import errors
from app.api.component_access import require_request_id_visible, require_submittable, visible_request
from app.api.errors import HttpRefusal, MalformedInput
from app.api.idempotency import read_idempotency_key
from app.api.metrics.registry import GRANT_LATENCY
from app.api.pagination import page_of, parse_cursor
from app.api.routing import Call
from app.api.schemas.events import TimelineEntryListResponse, TimelineEntryResponse
from app.api.schemas.inputs import (
    BatchBody,
    CheckpointBody,
    EmptyBody,
    HeartbeatBody,
    PageQuery,
    PollQuery,
    ReleaseBody,
    RequestsQuery,
    StartBody,
    SubmitQuery,
)
from app.api.schemas.problems import Problem
from app.api.schemas.requests import (
    BatchResponse,
    HeartbeatResponse,
    RequestCountsResponse,
    RequestResponse,
    RequestSearchResponse,
    SubmitResponse,
    WaitResponse,
)
from app.bootstrap import Services
from app.domain.errors import Refusal
from app.domain.explanations import WaitSummary
from app.domain.models import Request
from app.domain.request_filter import RequestCounts, RequestFilter
from app.domain.specs import RequestSpec
from app.domain.states import RequestState
from app.domain.tokens import Token
from app.service.validation import BATCH_SEPARATOR

RETRY_AFTER_S = 1
"""`Retry-After` of an answer that was given at once because every wait slot is taken."""


def submit_request(call: Call, body: RequestSpec, query: SubmitQuery) -> SubmitResponse:
    """Submit a request for units of several keys. The answer says if it is allocated, queued or rejected.

    With `wait_s` the answer comes when the request is no longer queued, or when the time is over; the request then stays
    queued. If all wait slots are taken, the answer comes at once, and `Retry-After` says when to ask again.
    With an `Idempotency-Key` the call may be repeated: the same key and body return the same request.
    """
    key = read_idempotency_key(call)
    require_submittable(call, body)
    start = time.perf_counter()
    summary = call.services.requests.submit_explained(call.workspace, body, key, call.token.as_limited)
    if summary.request.status is RequestState.ALLOCATED:
        call.process_metrics.observe(GRANT_LATENCY, time.perf_counter() - start)
    if summary.request.status is RequestState.QUEUED and query.wait_s:
        poll = PollQuery(wait_s=query.wait_s, status=RequestState.QUEUED)
        summary = WaitSummary(_wait_for_change(call, summary.request.id, poll))
    if summary.request.status is RequestState.QUEUED and not summary.statuses:
        summary = call.services.explain.summarize(call.workspace, summary.request.id)
    is_queued = summary.request.status is RequestState.QUEUED
    waits = WaitResponse.of(summary, with_ids=not call.token.is_limited) if is_queued else None
    return SubmitResponse.of_submit(summary.request, waits, call.token)


def _wait_for_change(call: Call, request: str, query: PollQuery) -> Request:
    """Return a request after a long poll. If all wait slots are taken return it at once, with `Retry-After`."""
    change = call.services.long_polls.wait_for_change(
        call.workspace,
        request,
        query.status,
        query.wait_s,
        call.client_disconnected,
        query.directive,
        call.token.share_holder,
    )
    if change.no_slot:
        call.response_headers["Retry-After"] = str(RETRY_AFTER_S)
    return change.request


def submit_batch(call: Call, body: BatchBody) -> BatchResponse:
    """Submit up to 1,000 requests in order. A malformed or refused one gets an error in its place of the answer.

    Each request counts as a call for the rate of the token, so the next call may have to wait.
    With an `Idempotency-Key` the call may be repeated: each request has that key and its number.
    """
    key = read_idempotency_key(call, most=240)
    call.services.tokens.charge(call.token, len(body.requests) - 1)
    responses: list[RequestResponse | Problem | None] = []
    specs: list[RequestSpec] = []
    keys: list[str | None] = []
    for number, raw in enumerate(body.requests):
        try:
            spec = RequestSpec.model_validate(raw)
            require_submittable(call, spec)
        except (ValidationError, HttpRefusal) as error:
            responses.append(_problem(error))
        else:
            responses.append(None)
            specs.append(spec)
            keys.append(f"{key}{BATCH_SEPARATOR}{number}" if key else None)
    results = iter(call.services.requests.submit_batch(call.workspace, specs, keys, call.token.as_limited))
    return BatchResponse.model_construct(
        items=[_submit_response(next(results)) if response is None else response for response in responses]
    )


def _submit_response(result: Request | Refusal) -> RequestResponse | Problem:
    return RequestResponse.of(result) if isinstance(result, Request) else _problem(result)


def _problem(error: Exception) -> Problem:
    refusal = MalformedInput.of(error, "the ask", RequestSpec) if isinstance(error, ValidationError) else error
    reply = errors.problem_reply(refusal)
    assert reply is not None
    return reply.body


def list_requests(call: Call, query: RequestsQuery) -> RequestSearchResponse:
    """List the requests that pass the filters, the newest first. Ended requests that are kept are included."""
    labels = dict(label.split(":", 1) for label in query.label)
    if any(labels[key] != value for key, _, value in (label.partition(":") for label in query.label)):
        no_counts = RequestCountsResponse.of(RequestCounts()) if query.counts else None
        return RequestSearchResponse(items=[], counts=no_counts)  # no request has two values of one label
    conditions = RequestFilter(
        query.status,
        query.component,
        query.component_type,
        query.pool,
        labels,
        query.id,
        query.search,
        call.token.visible_components,
    )
    rows, next_cursor = call.services.queries.list_requests(
        call.workspace, conditions, parse_cursor(query.cursor), query.limit, with_positions=query.positions
    )
    visible = [row for row in rows if call.token.can_see(row.component_type, row.component)]
    items = [RequestResponse.of(row, token=call.token) for row in visible]
    counts = None
    if query.counts:
        counts = RequestCountsResponse.of(call.services.queries.count_requests(call.workspace, replace(conditions, status=())))
    return RequestSearchResponse(items=items, next_cursor=None if next_cursor is None else str(next_cursor), counts=counts)


def get_request(call: Call, request: str, query: PollQuery) -> RequestResponse:
    """Return one request. With `wait_s` the answer comes when its status differs from `status`, or when the time is over.

    With `directive` the answer also comes when the directive differs, so that a client learns at once that it has to leave.
    If all wait slots are taken, the answer comes at once, and `Retry-After` says when to ask again.
    """
    require_request_id_visible(call, request)  # before the poll, which starts the queue TTL again
    if query.wait_s == 0:
        return RequestResponse.of(call.services.requests.poll(call.workspace, request), token=call.token)
    return RequestResponse.of(_wait_for_change(call, request, query), token=call.token)


def record_throttled_poll(services: Services, token: Token, workspace: str, request: str) -> None:
    """Record a poll that is refused with 429. The queue TTL starts again, so that a low rate lets no request expire."""
    services.requests.record_refused_poll(workspace, request, token.visible_components)


def send_heartbeat(call: Call, request: str, body: HeartbeatBody) -> HeartbeatResponse:
    """Prolong the lease of an allocation. The answer has its directive."""
    require_request_id_visible(call, request)
    return HeartbeatResponse.of(request, call.services.requests.heartbeat(call.workspace, request, body.fence))


def release_request(call: Call, request: str, body: ReleaseBody) -> RequestResponse:
    """Release the units of an allocation. Waiters that can be granted with them are granted before the answer.

    A victim that leaves with unfinished work reports `vacated`: its request goes back to the queue, or ends `preempted`.
    """
    require_request_id_visible(call, request)
    released = call.services.requests.release(call.workspace, request, body.fence, body.outcome, body.exit_code)
    return RequestResponse.of(released)


def report_checkpoint(call: Call, request: str, body: CheckpointBody) -> HeartbeatResponse:
    """Report the state of a checkpoint, after the directive `checkpoint` or a routine one.

    The report counts as a heartbeat and has the same answer. If a victim completes the checkpoint of its directive, it has
    left: its units are released. A `routine` checkpoint never releases units.
    """
    require_request_id_visible(call, request)
    report = (body.fence, body.state, body.seconds or 0, body.reference)
    return HeartbeatResponse.of(
        request, call.services.requests.checkpoint(call.workspace, request, *report, routine=body.routine)
    )


def cancel_request(call: Call, request: str, body: EmptyBody) -> RequestResponse:
    """Cancel a queued request: it leaves the queue."""
    require_request_id_visible(call, request)
    return RequestResponse.of(call.services.requests.cancel(call.workspace, request))


def drop_request(call: Call, request: str) -> RequestResponse:
    """Drop a request in any state, and take its units back. An ended request stays as it is."""
    return RequestResponse.of(call.services.requests.drop(call.workspace, request))


def list_request_events(call: Call, request: str, query: PageQuery) -> TimelineEntryListResponse:
    """List the events of one request, the oldest first."""
    timeline = visible_request(call, call.services.requests.get(call.workspace, request)).timeline
    entries, next_cursor = page_of(timeline, query)
    return TimelineEntryListResponse(
        items=[TimelineEntryResponse.of(entry, call.token) for entry in entries], next_cursor=next_cursor
    )


def start_request(call: Call, request: str, body: StartBody) -> HeartbeatResponse:
    """Start the work of an allocation, for one runner. Its lease begins, and other runners are refused under this fence."""
    require_request_id_visible(call, request)
    return HeartbeatResponse.of(request, call.services.tasks.start(call.workspace, request, body.fence, body.runner))
