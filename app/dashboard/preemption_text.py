"""A sentence before the table of candidates: the number of running requests that may be preempted, and the rules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from app.api.schemas.explain import PreemptionCandidateResponse, PreemptionResponse

RULE_TEXTS = {
    "reclaim": "to get back what is reserved for its policy",
    "priority": "by a higher rank",
    "class": "by a higher preemption class",
    "own": "within its own policy",
    "starvation": "as its policy has less than its fair share",
}
"""Rule → the words for its reason to permit a preemption."""


def preemption_sentence(preemption: PreemptionResponse) -> str:
    """Return a sentence with the number of requests that may be preempted for the waiter; empty without candidates."""
    rows = preemption.candidates
    count = len(rows) + preemption.more
    if not count:
        return ""
    running = f"the {count:,} requests that run here" if count > 1 else "the one request that runs here"
    rules = list(dict.fromkeys(row.rule for row in rows if row.rule))
    if not rules:
        none = f"None of {running}" if count > 1 else running.capitalize()
        return f"{none} may {'' if count > 1 else 'not '}be preempted for it{_refusal_text(rows)}."
    count_allowed = sum(row.rule is not None for row in rows)
    least = "at least " if preemption.more and count_allowed == len(rows) else ""
    subject = f"Of {running}, {least}{count_allowed:,}" if count > 1 else running.capitalize()
    return f"{subject} may be preempted for it: {' or '.join(_rule_text(rule) for rule in rules)}."


def _refusal_text(rows: Sequence[PreemptionCandidateResponse]) -> str:
    """Return the rules that refuse the candidates, or their only reason; empty if there are several reasons."""
    reasons = [[part.split(": ", 1) for part in (row.why_not or "").split("; ")] for row in rows]
    rules = list(dict.fromkeys(part[0] for part in chain.from_iterable(reasons) if len(part) > 1))
    if rules:
        return ": " + ", ".join(f"not {_rule_text(rule)}" for rule in rules)
    texts = {row.why_not for row in rows}
    return f"{'; the reason of each' if len(rows) > 1 else ''}: {texts.pop()}" if len(texts) == 1 else ""


def _rule_text(rule: str) -> str:
    return RULE_TEXTS.get(rule, f"by {rule}")
