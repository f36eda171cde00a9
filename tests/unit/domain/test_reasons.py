"""Reasons: each code has its sentence with its values."""

from __future__ import annotations

import pytest

from app.domain.plan_steps import Trigger
from app.domain.reasons import REASON_TEXTS, PoolRefusal, Reason, ReasonCode
from app.domain.request_origin import Origin


def test_every_code_has_a_sentence() -> None:
    assert set(REASON_TEXTS) == set(ReasonCode)


def test_every_trigger_is_a_reason() -> None:
    assert {str(trigger) for trigger in Trigger} <= {str(code) for code in ReasonCode}


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (Reason(ReasonCode.DROPPED), "an operator dropped it"),
        (Reason(ReasonCode.PRIORITY, by="r2"), "preempted for request r2, which ranks higher"),
        (Reason(ReasonCode.RECLAIM, by="r2"), "preempted for request r2, which fits into what its policy has reserved"),
        (Reason(ReasonCode.SENSITIVE), "preempted for another request, which has preemption class 10"),
        (Reason(ReasonCode.LEASE_LAPSED, by="r2"), "no heartbeat came before the lease lapsed"),
        (
            Reason(ReasonCode.EXCEEDS_LIMIT, (PoolRefusal("p", ReasonCode.EXCEEDS_LIMIT, "gpu", 3, 2, "policy:a/{by}"),)),
            "p: asks 3 of gpu; the limit of policy a/{by} is 2",
        ),
    ],
)
def test_a_message(reason: Reason, message: str) -> None:
    assert reason.message == message


def test_a_message_with_the_origin_of_the_other_request() -> None:
    reason = Reason(ReasonCode.PRIORITY, by="r2", by_origin=Origin("ana@gpu-01", "train.py", "orchestrator/team"))
    assert reason.message_with_origin == "preempted for request r2 (ana@gpu-01 train.py), which ranks higher"
    assert reason.message == "preempted for request r2, which ranks higher"
    assert Reason(ReasonCode.DROPPED).message_with_origin == "an operator dropped it"
