"""Records that explain why a request waits: queue status, shortfalls, holders of the units, preemption."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from app.domain.amounts import Amounts
from app.domain.models import Request
from app.domain.snapshot import Waiter


class WaitReason(StrEnum):
    """The reason why a pool does not grant a request. Of several, the first in this order counts."""

    WAITING_FOR_VICTIMS = "waiting_for_victims"
    OVER_LIMIT = "over_limit"
    OVER_RESERVED = "over_reserved"
    GROUP_LIMIT = "group_limit"
    NO_CAPACITY = "no_capacity"
    HELD = "held"
    BEHIND = "behind"


WAIT_REASON_TEXTS: dict[WaitReason, str] = {
    WaitReason.WAITING_FOR_VICTIMS: "Victims are leaving for the request.",
    WaitReason.OVER_LIMIT: "The request would exceed the limit of its policy.",
    WaitReason.OVER_RESERVED: "The request is not preemptible, and other fixed work uses all that its policy reserves.",
    WaitReason.GROUP_LIMIT: "The request would exceed the limit of a group above its policy.",
    WaitReason.NO_CAPACITY: "The pool has too few free units.",
    WaitReason.HELD: "There are free units, but they are held for another request.",
    WaitReason.BEHIND: "There are free units, but another request goes first.",
}
"""Wait reason → its meaning, as public text."""


class QueueState(StrEnum):
    """The further state of a queued request in a pool."""

    OWNER = "owner"
    """The request owns a victim hold in this pool."""
    ELSEWHERE = "elsewhere"
    """The request owns a victim hold in another pool."""
    SETTLING = "settling"
    """The pool was changed just now, and its queue is still being put in order."""
    LINE = "line"
    """Strict queueing: an earlier request waits for capacity."""
    PATIENT = "patient"
    """The request owns the patience hold of the pool."""
    NONE = ""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A constraint of an account that blocks a request: the units of a key that it needs there, and the available units.

    The kind is `limit`, `fixed` (reserved units for non-preemptible requests), `victim_held` (units kept by victim holds) or
    `patience_held` (units kept by the patience hold).
    """

    kind: str
    account: str
    key: str
    needed: int
    available: int

    @property
    def missing(self) -> int:
        """Return the units that are missing."""
        return self.needed - self.available

    @property
    def wait_reason(self) -> WaitReason:
        """Return the wait reason of this constraint."""
        if self.kind in ("victim_held", "patience_held"):
            return WaitReason.HELD
        if self.kind == "fixed":
            return WaitReason.OVER_RESERVED
        kind = self.account.partition(":")[0]
        return {"policy": WaitReason.OVER_LIMIT, "group": WaitReason.GROUP_LIMIT}.get(kind, WaitReason.NO_CAPACITY)


@dataclass(frozen=True, slots=True)
class AccountUsage:
    """One key of one account on the path from the policy to the pool. A limit of None is no bound."""

    account: str
    key: str
    limit: int | None
    reserved: int
    used: int
    fixed: int
    held_for_others: int
    """The units kept by holds of other requests that bind this one."""


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The status of a queued request in one pool: its position, and the constraints that block it."""

    pool: str
    position: int
    waiter_count: int
    """The number of waiters in the pool."""
    state: QueueState
    blocker: str
    """In state `elsewhere` the other pool, in state `line` the id of the first waiter."""
    patience_owner: str
    """The owner of the patience hold that binds the request."""
    strict: bool
    """True with strict queueing."""
    shortfalls: tuple[Shortfall, ...]
    usages: tuple[AccountUsage, ...]
    last_event: str
    """The id of the latest event of the workspace; empty in the answer to a submit."""
    rules_version: str
    """The version of the pool's rules."""
    waiter: Waiter
    """The request as the planner gets it."""

    @property
    def wait_reason(self) -> WaitReason:
        """Return the first wait reason that applies."""
        if self.state is QueueState.OWNER:
            return WaitReason.WAITING_FOR_VICTIMS
        reasons = {lack.wait_reason for lack in self.shortfalls}
        return next((verdict for verdict in WaitReason if verdict in reasons), WaitReason.BEHIND)

    @property
    def blocking(self) -> Shortfall | None:
        """Return the shortfall that blocks the request: of those with its wait reason, the one with the most missing units."""
        shortfalls = [lack for lack in self.shortfalls if lack.wait_reason is self.wait_reason]
        return max(shortfalls, key=lambda lack: lack.missing / lack.needed, default=None)

    def usage_of(self, lack: Shortfall) -> AccountUsage:
        """Return the use of the account and key of a shortfall."""
        return next(usage for usage in self.usages if (usage.account, usage.key) == (lack.account, lack.key))


@dataclass(frozen=True, slots=True)
class ShortReason:
    """The reason of a request's wait in a pool, with one short sentence."""

    verdict: WaitReason
    sentence: str


@dataclass(frozen=True, slots=True)
class WaitSummary:
    """A request with its wait reason in each pool whose queue it is in. The ledger knows them without the planner."""

    request: Request
    statuses: tuple[QueueStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyView:
    """One key of a request in a pool: the amount, and the state of the pool and of the request's policy.

    `free` counts the units without an allocation, `held_for_others` the part of them that holds keep for other requests.
    """

    needed: int
    free: int
    held_for_others: int
    limit: int | None
    reserved: int


@dataclass(frozen=True, slots=True)
class PolicyHolding:
    """A policy with allocations of the requested keys."""

    component: str
    used: Amounts
    in_share: Amounts
    borrowed: Amounts
    next_end_ms: int | None
    """The earliest end of its allocations with a walltime; None if none of them has a walltime."""


@dataclass(frozen=True, slots=True)
class PreemptionCandidate:
    """An allocation that a rule might preempt: the rule that permits it, or the reason why no rule does."""

    request: str
    component: str
    rule: str | None
    why_not: str | None


@dataclass(frozen=True, slots=True)
class PreemptionView:
    """The result of the search for victims."""

    considered: bool
    code: str
    reason: str
    candidates: tuple[PreemptionCandidate, ...] = ()
    more: int = 0
    """The number of candidates that are not listed."""
    leaving: tuple[str, ...] = ()
    """The victims that are leaving for the request."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The times at which a request may start. `latest_ms` is None if there is no bound."""

    earliest_ms: int
    likely_ms: int
    latest_ms: int | None
    basis: str
    run_times: int = 0
    """The number of run times measured in the pool."""
    is_rough: bool = False
    """True if there are too few run times for a good estimate."""


@dataclass(frozen=True, slots=True)
class PoolExplanation:
    """The explanation for one pool: the reason why a request waits there."""

    status: QueueStatus
    keys: Mapping[str, KeyView]
    holders: tuple[PolicyHolding, ...]
    preemption: PreemptionView
    would_start_if: str
    more_holders: int = 0
    """The number of holders that are not listed."""
    estimate: Estimate | None = None
    no_estimate: str | None = None
    """The reason why there is no estimate; None if there is one."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a request: the reason why it waits in each pool. If it is not queued, only the sentence."""

    request: Request
    sentence: str
    pools: tuple[PoolExplanation, ...] = ()
