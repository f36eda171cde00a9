"""The body of an HTTP request: read within its limit and deadline, and parsed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from threading import BoundedSemaphore

from flask import Request
from gunicorn.http.errors import ParseException
from pydantic import ValidationError

from app.api.body_limits import MAX_FORM_FIELDS, SMALL_BODY, BodyLimit, has_more_members
from app.api.errors import HttpRefusal, MalformedInput
from app.api.server import freed_memory, io_deadlines
from app.domain.field_types import StrictModel
from app.domain.validation_errors import field_errors
from app.service.wait_slots import TooManyWaiters

JSON = re.compile(r"application/(?:[\w.+-]+\+)?json", re.ASCII)
LARGE_BODIES_AT_A_TIME = 4
"""The most calls with a large body that a process serves at a time: until the answer, a parsed body may take 40 MB."""
TURN_WITHIN_S = 5.0
"""The longest time that such a call waits for its turn."""
_turns = BoundedSemaphore(LARGE_BODIES_AT_A_TIME)
FORM = "application/x-www-form-urlencoded"


def read_body(http_request: Request, limit: BodyLimit) -> bytes:
    """Return the body. Raise 413 if it is too large, and 400 if it breaks off or its chunks are broken."""
    length = announced_length(http_request)
    if length is None and not http_request.environ.get("wsgi.input_terminated"):
        return b""
    if length is not None and length > limit.bytes:
        raise _too_large(limit)
    data = _read_input(http_request, limit.bytes + 1 if length is None else length)
    if len(data) > limit.bytes:
        raise _too_large(limit)
    if length is not None and len(data) < length:
        raise MalformedInput([("", f"breaks off after {len(data)} of {length} bytes")])
    return data


def announced_length(http_request: Request) -> int | None:
    """Return the number of the header `Content-Length`; None without it, as for a chunked body."""
    text = http_request.environ.get("CONTENT_LENGTH") or ""
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise MalformedInput([("Content-Length", "has to be a number of bytes")], "a header")
    return int(text)


def _read_input(http_request: Request, size: int) -> bytes:
    with _read_deadline(http_request):
        try:
            return bytes(http_request.environ["wsgi.input"].read(size))
        except (ParseException, OSError) as error:  # gunicorn's error for a broken chunk; a lost connection
            raise MalformedInput([("", "breaks off, or its chunks are broken")]) from error


@contextmanager
def _read_deadline(http_request: Request) -> Iterator[None]:
    """Bound the time that the client may take to send the body."""
    sock = http_request.environ.get("gunicorn.socket")
    if sock:
        io_deadlines.start_reading(sock.fileno())
    try:
        yield
    finally:
        if sock:
            io_deadlines.finish(sock.fileno())


def read_form(http_request: Request) -> None:
    """Read the form of a page into `http_request.form`. Raise if it is too large, or is not a form."""
    data = read_body(http_request, SMALL_BODY)
    if data and http_request.mimetype != FORM:
        raise HttpRefusal(415, "no_form", f"a form has to be sent as {FORM}")
    if data.count(b"&") >= MAX_FORM_FIELDS:
        raise HttpRefusal(413, "too_many_members", f"a form may have {MAX_FORM_FIELDS} fields")
    http_request.environ.update({"wsgi.input": BytesIO(data), "CONTENT_LENGTH": str(len(data))})


def may_be_large(http_request: Request, limit: BodyLimit) -> bool:
    """True if the body is larger than most routes allow, or may be, as its length is not announced."""
    if limit.bytes <= SMALL_BODY.bytes:
        return False
    length = announced_length(http_request)
    return length > SMALL_BODY.bytes if length is not None else "wsgi.input_terminated" in http_request.environ


@contextmanager
def large_body_turn() -> Iterator[None]:
    """Hold a turn for a large body, after it has been read. Raise TooManyWaiters if none is free within TURN_WITHIN_S."""
    if not _turns.acquire(timeout=TURN_WITHIN_S):
        raise TooManyWaiters(f"the {LARGE_BODIES_AT_A_TIME} large bodies that a process serves at a time take long")
    try:
        yield
    finally:
        _turns.release()
        freed_memory.record_large_body()


def parse_body(model: type[StrictModel], http_request: Request, data: bytes, limit: BodyLimit) -> StrictModel:
    """Return the body as its model. Raise if it is not JSON, has too many members, or is malformed."""
    if http_request.environ.get("CONTENT_TYPE") != "application/json" and not JSON.fullmatch(http_request.mimetype):
        raise HttpRefusal(415, "not_json", "the body has to be JSON, and Content-Type to say so: application/json")
    if not data:
        raise MalformedInput([("", "is empty, and has to be JSON")])
    if has_more_members(data, limit.members):
        detail = f"a body may have {limit.members} members in its objects and lists together, and this one has more"
        raise HttpRefusal(413, "too_many_members", detail)
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        faults = field_errors(error, model)
    raise MalformedInput(faults)  # after the handler, so that it does not keep the error, which is larger than the body


def _too_large(limit: BodyLimit) -> HttpRefusal:
    return HttpRefusal(413, "body_too_large", f"a body may have {limit.bytes} bytes")
