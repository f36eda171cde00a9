"""The decisions of a pass and their reasons: every code there is, each with its sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from app.domain.plan_steps import Trigger


class Outcome(StrEnum):
    """What the pass did about a waiter."""

    PREEMPTS = "preempts"
    WAITS = "waits"
    ENDS = "ends"


class DecisionReason(StrEnum):
    """Why a waiter preempts, does not preempt, or loses its hold."""

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
    DecisionReason.NO_SHORTAGE: (
        "nothing is short for it once the victims that are leaving have left: it waits for them, or for its turn"
    ),
    DecisionReason.PREFERS_ANOTHER: "it prefers another pool, which is judged first",
    DecisionReason.NO_POLICY: "its component has no policy in this pool",
    DecisionReason.FIXED_SHARE_USED_UP: "it is not preemptible, and the fixed share of its policy is used up",
    DecisionReason.BEHIND: "the queueing is strict, and a request before it waits for capacity",
    DecisionReason.MANY_HOLDS: "the pool has as many holds with victims as it may; it is judged again when one of them ends",
    DecisionReason.BACKOFF: "the pool pauses between two decisions to preempt",
    DecisionReason.MINUTE_USED_UP: "the pool has made as many preemptions in this minute as it may",
    DecisionReason.NOT_ENOUGH: "all allocations that it may preempt would not make it fit",
    DecisionReason.TOO_MANY: "it would take more victims than one decision may have",
    DecisionReason.NOT_WITHIN: (
        "it would not lie within its policy's reserved, so it may not take from its own policy what is in share"
    ),
    DecisionReason.TOO_DEAR: "preempting the victims would cost more than it is worth",
    DecisionReason.NOT_STARVING: "neither its policy nor a group above it starves, or others leave for it already",
    DecisionReason.ONE_AT_A_TIME: "another request is served by preemption first, and then the shares are compared again",
    DecisionReason.WOULD_BE_TAKEN_BACK: ("its victims would then be below their fair share, and could take from it in turn"),
    DecisionReason.NOT_WEIGHED: "this planning pass had no time left to choose victims for it",
}


class RefusalReason(StrEnum):
    """Why an allocation may not be taken."""

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
    RefusalReason.JUST_STARTED: "it has not run for the shortest time that the pool grants",
    RefusalReason.SAME_CHAIN: "it belongs to the same chain of requests",
    RefusalReason.HOLDS_NOTHING_SHORT: "it holds nothing of what is short, where it is short",
    RefusalReason.SAME_POLICY: "it is of the same policy",
    RefusalReason.OTHER_POLICY: "it is of another policy",
    RefusalReason.SHARE_NOT_UNUSED: "the waiter does not fit into an unused share of its own",
    RefusalReason.RANK_NOT_LOWER: "its rank is not lower",
    RefusalReason.RANK_HIGHER: "its rank is higher",
    RefusalReason.IN_SHARE: "it lies in its share",
    RefusalReason.SERVICE_IN_SHARE: "it is a service and lies in its share",
    RefusalReason.GRANTED_BEFORE: "it was granted before the waiter was preempted",
    RefusalReason.NOT_STARVING: "the waiter's policy does not starve, nor does a group above it",
    RefusalReason.STARVES: "its policy starves itself",
    RefusalReason.WITHIN_FAIR_SHARE: "it lies within its policy's fair share of what is short",
    RefusalReason.BEYOND_FAIR_SHARE: "the waiter would not lie within its own policy's fair share",
}


@dataclass(frozen=True, slots=True)
class CandidateVerdict:
    """The answer of the rules about one allocation: the rule that allows it, or why each rule does not.

    If no rule was asked, as the allocation is protected or holds no short key, the one reason has no rule.
    """

    allocation: str
    rule: str | None
    trigger: Trigger | None
    conditional: bool
    """Allowed only if the waiter lies within its policy's reserved amounts when all victims of the set have left."""
    refusals: tuple[tuple[str | None, RefusalReason], ...]

    @property
    def allowed(self) -> bool:
        """True if the allocation could be taken."""
        return self.rule is not None

    @property
    def sentence(self) -> str:
        """One sentence for people."""
        if self.rule is not None:
            return f"it may be taken by {self.rule}"
        return "; ".join(f"{rule}: {REFUSAL_SENTENCES[why]}" if rule else REFUSAL_SENTENCES[why] for rule, why in self.refusals)


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of the pass about one waiter, or one owner of a hold."""

    waiter: str
    outcome: Outcome
    reason: DecisionReason
    list_verdicts: Callable[[], Iterator[CandidateVerdict]] | None = field(default=None, repr=False, compare=False)
    """Works out the answers of the rules about each allocation; None if no rule was asked."""

    @property
    def sentence(self) -> str:
        """One sentence for people."""
        return DECISION_SENTENCES[self.reason]

    def verdicts(self) -> Iterator[CandidateVerdict]:
        """Yield the answers of the rules about each allocation that was not leaving then, worked out only now."""
        return iter(()) if self.list_verdicts is None else self.list_verdicts()
