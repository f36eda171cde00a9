"""The decisions of a pass and their reasons: all codes, each with its sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from app.domain.plan_steps import Trigger


class Outcome(StrEnum):
    """The result of a pass for one waiter."""

    PREEMPTS = "preempts"
    WAITS = "waits"
    ENDS = "ends"


class DecisionReason(StrEnum):
    """The reason why a waiter preempts, does not preempt, or loses its hold."""

    FITS_THEN = "fits_then"
    NO_SHORTAGE = "no_shortage"
    PREFERS_ANOTHER = "prefers_another"
    NO_POLICY = "no_policy"
    FIXED_SHARE_USED_UP = "fixed_share_used_up"
    BEHIND = "behind"
    MANY_HOLDS = "many_holds"
    BACKOFF = "backoff"
    MINUTE_USED_UP = "minute_used_up"
    NOT_ENOUGH = "not_enough"
    TOO_MANY = "too_many"
    NOT_WITHIN = "not_within"
    TOO_DEAR = "too_dear"
    NOT_STARVING = "not_starving"
    ONE_AT_A_TIME = "one_at_a_time"
    WOULD_BE_TAKEN_BACK = "would_be_taken_back"
    NOT_WEIGHED = "not_weighed"


DECISION_SENTENCES: dict[DecisionReason, str] = {
    DecisionReason.FITS_THEN: "it fits when its victims have left",
    DecisionReason.NO_SHORTAGE: "it fits when the victims that are leaving now have left: it waits for them, or for its turn",
    DecisionReason.PREFERS_ANOTHER: "it prefers another pool, which is judged first",
    DecisionReason.NO_POLICY: "its component has no policy in this pool",
    DecisionReason.FIXED_SHARE_USED_UP: "it is not preemptible, and the fixed share of its policy is used up",
    DecisionReason.BEHIND: "the queue is strict, and an earlier request waits for capacity",
    DecisionReason.MANY_HOLDS: "the pool has the most victim holds that are allowed; one of them has to end first",
    DecisionReason.BACKOFF: "the pool pauses between two decisions to preempt",
    DecisionReason.MINUTE_USED_UP: "the pool has used up its preemptions of this minute",
    DecisionReason.NOT_ENOUGH: "it would not fit even if all allocations that it may preempt left",
    DecisionReason.TOO_MANY: "it needs more victims than one decision may have",
    DecisionReason.NOT_WITHIN: (
        "it would exceed the reserved units of its policy, so it may not preempt allocations in share of its own policy"
    ),
    DecisionReason.TOO_DEAR: "the cost of preempting the victims is higher than the value of the request",
    DecisionReason.NOT_STARVING: "neither its policy nor a group above it starves, or victims are already leaving for it",
    DecisionReason.ONE_AT_A_TIME: "another request preempts first, and then the shares are compared again",
    DecisionReason.WOULD_BE_TAKEN_BACK: (
        "the policies of its victims would then be below their fair share, and could preempt it in turn"
    ),
    DecisionReason.NOT_WEIGHED: "this planning pass had no time left to choose victims for it",
}


class RefusalReason(StrEnum):
    """The reason why an allocation may not be preempted."""

    FIXED = "fixed"
    CLASS_TEN = "class_ten"
    SENSITIVE = "sensitive_profile"
    NO_CHECKPOINT = "no_checkpoint"
    NEAR_COMPLETION = "near_completion"
    JUST_STARTED = "just_started"
    SAME_CHAIN = "same_chain"
    HOLDS_NOTHING_SHORT = "holds_nothing_short"
    SAME_POLICY = "same_policy"
    OTHER_POLICY = "other_policy"
    SHARE_NOT_UNUSED = "share_not_unused"
    RANK_NOT_LOWER = "rank_not_lower"
    RANK_HIGHER = "rank_higher"
    IN_SHARE = "in_share"
    SERVICE_IN_SHARE = "service_in_share"
    GRANTED_BEFORE = "granted_before"
    NOT_STARVING = "not_starving"
    STARVES = "starves"
    WITHIN_FAIR_SHARE = "within_fair_share"
    BEYOND_FAIR_SHARE = "beyond_fair_share"


REFUSAL_SENTENCES: dict[RefusalReason, str] = {
    RefusalReason.FIXED: "it is not preemptible",
    RefusalReason.CLASS_TEN: "its preemption class is 10",
    RefusalReason.SENSITIVE: "its policy has the profile sensitive",
    RefusalReason.NO_CHECKPOINT: "it cannot checkpoint, and its preemption class is 7 or higher",
    RefusalReason.NEAR_COMPLETION: "it is near the end of its walltime",
    RefusalReason.JUST_STARTED: "it has not run for the min_runtime_s of the pool yet",
    RefusalReason.SAME_CHAIN: "it has the same label preemption_group as the waiter",
    RefusalReason.HOLDS_NOTHING_SHORT: "it holds no units that the waiter lacks",
    RefusalReason.SAME_POLICY: "it is of the same policy",
    RefusalReason.OTHER_POLICY: "it is of another policy",
    RefusalReason.SHARE_NOT_UNUSED: "the waiter does not fit into an unused share of its own",
    RefusalReason.RANK_NOT_LOWER: "its rank is not lower",
    RefusalReason.RANK_HIGHER: "its rank is higher",
    RefusalReason.IN_SHARE: "it is in share",
    RefusalReason.SERVICE_IN_SHARE: "it is a service, and in share",
    RefusalReason.GRANTED_BEFORE: "it was granted before the waiter was preempted",
    RefusalReason.NOT_STARVING: "the waiter's policy does not starve, nor does a group above it",
    RefusalReason.STARVES: "its policy is itself starving",
    RefusalReason.WITHIN_FAIR_SHARE: "it lies within its policy's fair share of the short keys",
    RefusalReason.BEYOND_FAIR_SHARE: "the waiter would exceed the fair share of its own policy",
}


@dataclass(frozen=True, slots=True)
class CandidateVerdict:
    """The answer of the rules about one allocation: the rule that allows it, or the reason of each rule that does not.

    If the allocation is protected or holds no short key, no rule was asked: then the one reason has no rule.
    """

    allocation: str
    rule: str | None
    trigger: Trigger | None
    conditional: bool
    """True if the permit needs the waiter within its policy's reserved amounts when all victims of the set have left."""
    refusals: tuple[tuple[str | None, RefusalReason], ...]

    @property
    def allowed(self) -> bool:
        """True if the allocation may be preempted."""
        return self.rule is not None

    @property
    def sentence(self) -> str:
        """Return the answer as one sentence."""
        if self.rule is not None:
            return f"it may be preempted by the rule {self.rule}"
        return "; ".join(f"{rule}: {REFUSAL_SENTENCES[why]}" if rule else REFUSAL_SENTENCES[why] for rule, why in self.refusals)


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of a pass about one waiter, or about one owner of a hold."""

    waiter: str
    outcome: Outcome
    reason: DecisionReason
    list_verdicts: Callable[[], Iterator[CandidateVerdict]] | None = field(default=None, repr=False, compare=False)
    """Returns the answers of the rules about each allocation, computed on demand; None if no rule was asked."""

    @property
    def sentence(self) -> str:
        """Return the reason as one sentence."""
        return DECISION_SENTENCES[self.reason]

    def verdicts(self) -> Iterator[CandidateVerdict]:
        """Yield the answers of the rules about each allocation that was not leaving at the decision. They are computed now."""
        return iter(()) if self.list_verdicts is None else self.list_verdicts()
