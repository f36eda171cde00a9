"""Requests: ask, wait, hold, give back."""

from __future__ import annotations

import time
from typing import Annotated

from pydantic import ValidationError

from app.api import errors
from app.api.errors import Malformed, Refusal
from app.api.pagination import number_of, page_of
from app.api.routing import Call
from app.api.schemas.events import ToldAnswer
from app.api.schemas.inputs import BatchAsk, CheckpointAsk, EmptyAsk, HeartbeatAsk, Paged, PollQuery, ReleaseAsk, RequestsQuery
from app.api.schemas.requests import Answer, BeatAnswer, Page, Problem, RequestAnswer
from app.domain.errors import Refused
from app.domain.models import Request
from app.domain.names import IDEMPOTENCY_PATTERN, RULES, is_idempotency_key
from app.domain.queue_score import CLASSES
from app.domain.specs import RequestAsk
from app.domain.states import State
from app.domain.tokens import Permission, Token
from app.service.validation import OF_BATCH
from app.store.queries import Wanted

AGAIN_S = 1
"""When to ask again after a full house."""


class BatchAnswer(Answer):
    """What became of each, in order."""

    items: list[Annotated[RequestAnswer | Problem, "one of them"]]


def submit(call: Call, body: RequestAsk) -> RequestAnswer:
    """Ask for several resources at once: allocated, queued or rejected when this answers.

    With an `Idempotency-Key` it may be repeated: the same key and body give the same request back.
    """
    key = idempotency_key(call)
    check_ask(call, body)
    begun = time.perf_counter()
    request = call.services.requests.submit(call.workspace, body, key)
    if request.status is State.ALLOCATED:
        call.counted.granted(time.perf_counter() - begun)
    return RequestAnswer.of(request)


def submit_batch(call: Call, body: BatchAsk) -> BatchAnswer:
    """Take in up to 1,000 asks in order, each for itself; what is malformed or refused is answered in its place.

    With an `Idempotency-Key` it may be repeated: each ask then has that key and its number.
    """
    key = idempotency_key(call, most=240)
    answers: list[RequestAnswer | Problem | None] = []
    taken: list[tuple[RequestAsk, str | None]] = []
    for number, raw in enumerate(body.requests):
        try:
            ask = RequestAsk.model_validate(raw)
            check_ask(call, ask)
        except (ValidationError, Refusal) as wrong:
            answers.append(_problem(wrong))
        else:
            answers.append(None)
            taken.append((ask, f"{key}{OF_BATCH}{number}" if key else None))
    outcomes = iter(call.services.requests.submit_all(call.workspace, [ask for ask, _ in taken], [one for _, one in taken]))
    return BatchAnswer.model_construct(items=[_told(next(outcomes)) if answer is None else answer for answer in answers])


def _told(outcome: Request | Refused) -> RequestAnswer | Problem:
    return RequestAnswer.of(outcome) if isinstance(outcome, Request) else _problem(outcome)


def _problem(error: Exception) -> Problem:
    told = errors.reply(Malformed.of(error, "the ask") if isinstance(error, ValidationError) else error)
    assert told is not None
    return told.body


def every(call: Call, query: RequestsQuery) -> Page[RequestAnswer]:
    """Requests, newest first, those kept that have ended included."""
    labels = dict(label.split(":", 1) for label in query.label)
    if any(labels[key] != value for key, _, value in (label.partition(":") for label in query.label)):
        return Page(items=[])  # no request has two values of one label
    wanted = Wanted(query.status, query.component, query.component_type, query.pool, labels)
    found, follows = call.services.lists.requests(call.workspace, wanted, number_of(query.cursor), query.limit)
    items = [RequestAnswer.of(one) for one in found if call.token.may_see(one.component_type, one.component)]
    return Page(items=items, next_cursor=None if follows is None else str(follows))


def show(call: Call, request: str, query: PollQuery) -> RequestAnswer:
    """One request. With `wait_s` it answers when the status differs from `status`, or when the time is up.

    With `directive` too it also answers when the directive differs from that: so a holder learns at once that it has to leave.
    When too many wait already, it answers the present state at once, and `Retry-After` says when to ask again.
    """
    check_holder(call, request)  # before it is polled: who may not see it must not keep it from going stale
    if query.wait_s == 0:
        return RequestAnswer.of(call.services.requests.poll(call.workspace, request))
    told = call.services.waiting.changed(call.workspace, request, query.status, query.wait_s, call.gone, query.directive)
    if told.full:
        call.says["Retry-After"] = str(AGAIN_S)
    return RequestAnswer.of(told.request)


def heartbeat(call: Call, request: str, body: HeartbeatAsk) -> BeatAnswer:
    """Say that the holder is alive: the lease is prolonged, and the answer says what the holder is to do."""
    check_holder(call, request)
    return BeatAnswer.of(request, call.services.requests.heartbeat(call.workspace, request, body.fence))


def release(call: Call, request: str, body: ReleaseAsk) -> RequestAnswer:
    """Give the units back; who can be granted with them has been when this answers.

    Who is `preempting` and has left before its end says `vacated`: it goes back to the queue, or ends `preempted`.
    """
    check_holder(call, request)
    return RequestAnswer.of(call.services.requests.release(call.workspace, request, body.fence, body.outcome))


def checkpoint(call: Call, request: str, body: CheckpointAsk) -> BeatAnswer:
    """Say how far the saving of the work is, be it routine or because of the directive `checkpoint`.

    It counts as a heartbeat and is answered like one, with the status it has then: who completes a checkpoint that was asked
    for has left with that, unless it says that it is `routine`.
    """
    check_holder(call, request)
    told = (body.fence, body.state, body.seconds or 0, body.reference)
    return BeatAnswer.of(request, call.services.requests.checkpoint(call.workspace, request, *told, routine=body.routine))


def cancel(call: Call, request: str, body: EmptyAsk) -> RequestAnswer:
    """Leave the queue."""
    check_holder(call, request)
    return RequestAnswer.of(call.services.requests.cancel(call.workspace, request))


def drop(call: Call, request: str) -> RequestAnswer:
    """End a request whatever its state, units back; one that has ended stays as it is."""
    return RequestAnswer.of(call.services.requests.drop(call.workspace, request))


def story(call: Call, request: str, query: Paged) -> Page[ToldAnswer]:
    """Everything that happened to one request, in order."""
    told, follows = page_of(own(call, call.services.requests.look(call.workspace, request)).story, query)
    return Page(items=[ToldAnswer.of(line) for line in told], next_cursor=follows)


def idempotency_key(call: Call, most: int = 255) -> str | None:
    """The key the client gave."""
    key = call.headers.get("Idempotency-Key")
    if key is not None and (not is_idempotency_key(key) or len(key) > most):
        raise Malformed([("Idempotency-Key", RULES[IDEMPOTENCY_PATTERN].replace("255", str(most)))], "a header")
    return key


def check_ask(call: Call, ask: RequestAsk) -> None:
    """Raises unless the caller may ask this."""
    if not call.token.may_act_for(ask.component_type, ask.component):
        raise not_yours(ask.component_type, ask.component)
    check_class(call, ask)


def check_class(call: Call, ask: RequestAsk) -> None:
    """Raises unless the caller may ask as dearly as that."""
    if ask.preemption_class == CLASSES - 1 and not call.token.may(Permission.SENSITIVE):
        raise Refusal(403, "not_permitted", "this token may not ask for class 10: it lacks the permission sensitive")


def check_holder(call: Call, request: str) -> None:
    """Raises unless the caller may see, and so act for, the request's component; only for a limited token is it looked up."""
    if call.token.is_limited:
        own(call, call.services.requests.look(call.workspace, request))


def own(call: Call, request: Request) -> Request:
    """The request, if the caller may see it."""
    check_seen(call.token, request)
    return request


def check_seen(token: Token, request: Request) -> None:
    """Raises unless the token may see the request."""
    if not token.may_see(request.component_type, request.component):
        raise Refusal(403, "other_component", "this request is of a component that this token is not for")


def not_yours(kind: str, component: str) -> Refusal:
    """The answer to who meddles with a component of others."""
    return Refusal(403, "other_component", f"this token is not for component {kind}/{component}")
