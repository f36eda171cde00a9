"""Errors of the client: passed between processes, and as messages for people."""

from __future__ import annotations

import pickle

import pytest
from poolkeeper import errors
from poolkeeper.models import Reason, Request

ENDED = Request(id="r", status="rejected", reason=Reason("exceeds_capacity", "too much"))


@pytest.mark.parametrize(
    "error",
    [
        errors.PoolkeeperError("no"),
        errors.api_error(409, {"detail": "gone", "code": "stale_fence", "directive": "kill"}, 2.0, repeated=True),
        errors.RequestRejected(ENDED),
        errors.WaitTimeout(ENDED, "too late"),
        errors.AllocationLost("gone", suspected=True),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_a_pickle(error: errors.PoolkeeperError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_how_it_ended_is_said_with_the_reason() -> None:
    assert str(errors.RequestRejected(ENDED)) == "request r is rejected: too much"
    assert str(errors.NotGranted(Request(id="r", status="expired"))) == "request r is expired"
    released = "request r is released: it is over; other work needs an idempotency key of its own"
    assert str(errors.NotGranted(Request(id="r", status="released"))) == released


def test_a_problem_document_without_words_is_put_into_words() -> None:
    assert str(errors.api_error(418, {}, None, repeated=False)) == "418 I'm a Teapot"
    assert str(errors.api_error(599, {}, None, repeated=False)) == "599 is not a status"
