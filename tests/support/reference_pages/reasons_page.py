"""The reference page of reasons."""

from __future__ import annotations

import re

from app.domain.explanations import WAIT_REASON_TEXTS
from app.domain.plan_steps import Trigger
from app.domain.reasons import REASON_TEXTS, ReasonCode
from app.planner.decisions import DECISION_SENTENCES, REFUSAL_SENTENCES
from app.planner.estimates.start_times import NoEstimate
from tests.support.reference_pages.markdown import code, page, table


def reasons_page() -> str:
    """Return the page: every reason of a state, of a wait, and of a decision to preempt."""
    return page(
        "Reasons",
        "A request that was rejected, preempted or ended, or that waits, has a reason: a stable code, and a sentence with its "
        "numbers. `poolkeeper request explain` shows them.",
        "app/domain/reasons.py, app/domain/explanations.py and app/planner/decisions.py",
        "## Requests",
        "The field `reason` of a request. Words in italics stand for a name or a number.",
        table(
            ["code", "reason of", "sentence"],
            ([code(reason), _kind(reason), _italic(REASON_TEXTS[reason])] for reason in ReasonCode),
        ),
        "## Waiting",
        "The field `verdict` of an explanation: why a request waits in a pool. It is the first of these that applies.",
        table(["verdict", "meaning"], ([code(reason), text] for reason, text in WAIT_REASON_TEXTS.items())),
        "## Preemption",
        "The field `preemption.code` of an explanation: what the last planning pass decided for the request.",
        table(["code", "sentence"], ([code(reason), text] for reason, text in DECISION_SENTENCES.items())),
        "## Candidates",
        "The field `why_not` of a candidate: for each rule, why it does not permit to preempt the allocation.",
        table(["code", "sentence"], ([code(reason), text] for reason, text in REFUSAL_SENTENCES.items())),
        "## Estimates",
        "The field `no_estimate`: why there is no estimate of the start.",
        table(["sentence"], ([text.value] for text in NoEstimate)),
    )


def _kind(reason: ReasonCode) -> str:
    if reason.value in set(Trigger):
        return "a preemption"
    return "a rejection" if reason is ReasonCode.UNKNOWN_POOL or "{" in REASON_TEXTS[reason] else "an end"


def _italic(sentence: str) -> str:
    return re.sub(r"{(\w+)}", r"*\1*", sentence)
