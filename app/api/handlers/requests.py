"""Requests: ask, wait, hold, give back."""

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
    """Ask for several resources at once: allocated, queued or rejected when this answers.

    With `wait_s` it answers when the request is no longer queued, or when the time is up; then the request stays queued.
    When too many wait already, it answers at once, and `Retry-After` says when to ask again.
    With an `Idempotency-Key` it may be repeated: the same key and body give the same request back, and wait for it as well.
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
    """Return a request after a long poll. Without a wait slot it is returned at once, and the answer says when to ask again."""
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
    """Take in up to 1,000 asks in order, each for itself; what is malformed or refused is answered in its place.

    Each ask counts as a call for the rate of the token: the next call may have to wait for all of them.
    With an `Idempotency-Key` it may be repeated: each ask then has that key and its number.
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
    """Requests, newest first, those kept that have ended included."""
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
    """One request. With `wait_s` it answers when the status differs from `status`, or when the time is up.

    With `directive` too it also answers when the directive differs from that: so a holder learns at once that it has to leave.
    When too many wait already, it answers the present state at once, and `Retry-After` says when to ask again.
    """
    require_request_id_visible(call, request)  # before the poll, which keeps a request from going stale
    if query.wait_s == 0:
        return RequestResponse.of(call.services.requests.poll(call.workspace, request), token=call.token)
    return RequestResponse.of(_wait_for_change(call, request, query), token=call.token)


def record_throttled_poll(services: Services, token: Token, workspace: str, request: str) -> None:
    """Record a poll that is answered 429: its queue TTL begins anew, so no request expires because its token has a low rate."""
    services.requests.record_refused_poll(workspace, request, token.visible_components)


def send_heartbeat(call: Call, request: str, body: HeartbeatBody) -> HeartbeatResponse:
    """Say that the holder is alive: the lease is prolonged, and the answer says what the holder is to do."""
    require_request_id_visible(call, request)
    return HeartbeatResponse.of(request, call.services.requests.heartbeat(call.workspace, request, body.fence))


def release_request(call: Call, request: str, body: ReleaseBody) -> RequestResponse:
    """Give the units back; who can be granted with them has been when this answers.

    Who is `preempting` and has left before its end says `vacated`: it goes back to the queue, or ends `preempted`.
    """
    require_request_id_visible(call, request)
    released = call.services.requests.release(call.workspace, request, body.fence, body.outcome, body.exit_code)
    return RequestResponse.of(released)


def report_checkpoint(call: Call, request: str, body: CheckpointBody) -> HeartbeatResponse:
    """Say how far the saving of the work is, be it routine or because of the directive `checkpoint`.

    It counts as a heartbeat and is answered like one, with the status it has then: who completes a checkpoint that was asked
    for has left with that, unless it says that it is `routine`.
    """
    require_request_id_visible(call, request)
    report = (body.fence, body.state, body.seconds or 0, body.reference)
    return HeartbeatResponse.of(
        request, call.services.requests.checkpoint(call.workspace, request, *report, routine=body.routine)
    )


def cancel_request(call: Call, request: str, body: EmptyBody) -> RequestResponse:
    """Leave the queue."""
    require_request_id_visible(call, request)
    return RequestResponse.of(call.services.requests.cancel(call.workspace, request))


def drop_request(call: Call, request: str) -> RequestResponse:
    """End a request whatever its state, units back; one that has ended stays as it is."""
    return RequestResponse.of(call.services.requests.drop(call.workspace, request))


def list_request_events(call: Call, request: str, query: PageQuery) -> TimelineEntryListResponse:
    """Everything that happened to one request, in order."""
    timeline = visible_request(call, call.services.requests.get(call.workspace, request)).timeline
    entries, next_cursor = page_of(timeline, query)
    return TimelineEntryListResponse(
        items=[TimelineEntryResponse.of(entry, call.token) for entry in entries], next_cursor=next_cursor
    )


def start_request(call: Call, request: str, body: StartBody) -> HeartbeatResponse:
    """Begin what was granted, task or not: the lease runs from now on, and no other runner may begin it under this fence."""
    require_request_id_visible(call, request)
    return HeartbeatResponse.of(request, call.services.tasks.start(call.workspace, request, body.fence, body.runner))
