"""Why somebody waits: what the rules that decide said, where it stands, who holds the units, and what would have to happen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from app.domain.amounts import Amounts
from app.domain.models import Request
from app.domain.snapshot import Waiter


class WaitReason(StrEnum):
    """What keeps a request from being granted in a pool: the first that applies, in this order."""

    WAITING_FOR_VICTIMS = "waiting_for_victims"
    """Others are leaving for it."""
    OVER_LIMIT = "over_limit"
    """Its policy's limit."""
    OVER_RESERVED = "over_reserved"
    """It is not preemptible, and what is reserved for its policy is used up by others that are not."""
    GROUP_LIMIT = "group_limit"
    """The limit of a group that its policy is part of."""
    NO_CAPACITY = "no_capacity"
    HELD = "held"
    """There are units, but they are kept for somebody else."""
    BEHIND = "behind"
    """There is room for it, but somebody is served before it."""


class QueueState(StrEnum):
    """How it stands in a pool besides."""

    OWNER = "owner"
    """Others leave for it here."""
    ELSEWHERE = "elsewhere"
    """Others leave for it in another pool."""
    SETTLING = "settling"
    """The pool was changed just now, and its queue is still being put in order."""
    LINE = "line"
    """Strict queueing: somebody before it waits for capacity."""
    PATIENT = "patient"
    """What comes free is kept for it, as it was passed for too long."""
    NONE = ""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A constraint of an account that it does not meet: how much of a key it needs there, and how much room there is.

    The kind is `limit`, `fixed` (reserved units for non-preemptible requests), `victim_held` (kept by holds with victims)
    or `patience_held` (by that of patience).
    """

    kind: str
    account: str
    key: str
    needed: int
    available: int

    @property
    def missing(self) -> int:
        """How much more there would have to be."""
        return self.needed - self.available

    @property
    def wait_reason(self) -> WaitReason:
        """What is said of it."""
        if self.kind in ("victim_held", "patience_held"):
            return WaitReason.HELD
        if self.kind == "fixed":
            return WaitReason.OVER_RESERVED
        kind = self.account.partition(":")[0]
        return {"policy": WaitReason.OVER_LIMIT, "group": WaitReason.GROUP_LIMIT}.get(kind, WaitReason.NO_CAPACITY)


@dataclass(frozen=True, slots=True)
class AccountUsage:
    """One key of one account on the way from its policy to the pool. A limit is None where none counts."""

    account: str
    key: str
    limit: int | None
    reserved: int
    used: int
    fixed: int
    held_for_others: int
    """For holds of others, as far as they bind it."""


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Where it stands in the queue of one pool, and what the rules say to it."""

    pool: str
    position: int
    waiter_count: int
    """Who waits there in all."""
    state: QueueState
    blocker: str
    """Of `elsewhere` the pool, of `line` who is the first."""
    patience_owner: str
    """Whose hold of patience binds it."""
    strict: bool
    """Whether nobody is served before those who wait for capacity longer."""
    shortfalls: tuple[Shortfall, ...]
    usages: tuple[AccountUsage, ...]
    last_event: str
    """What had happened last in the workspace."""
    rules_version: str
    """Which state of the pool's rules it is."""
    waiter: Waiter
    """The request, as the planner sees it."""

    @property
    def wait_reason(self) -> WaitReason:
        """The first that applies."""
        if self.state is QueueState.OWNER:
            return WaitReason.WAITING_FOR_VICTIMS
        reasons = {lack.wait_reason for lack in self.shortfalls}
        return next((verdict for verdict in WaitReason if verdict in reasons), WaitReason.BEHIND)

    @property
    def blocking(self) -> Shortfall | None:
        """What keeps it: of the lacks of its verdict the one that lacks most of what it needs."""
        shortfalls = [lack for lack in self.shortfalls if lack.wait_reason is self.wait_reason]
        return max(shortfalls, key=lambda lack: lack.missing / lack.needed, default=None)

    def usage_of(self, lack: Shortfall) -> AccountUsage:
        """Where it lacks that."""
        return next(usage for usage in self.usages if (usage.account, usage.key) == (lack.account, lack.key))


@dataclass(frozen=True, slots=True)
class KeyView:
    """What it needs of a key in a pool and what there is. `free` is what nobody holds, `held_for_others` the part of it that is
    kept for others; limit and reserved are its policy's."""

    needed: int
    free: int
    held_for_others: int
    limit: int | None
    reserved: int


@dataclass(frozen=True, slots=True)
class PolicyHolding:
    """A policy that holds units of the keys that are asked."""

    component: str
    used: Amounts
    in_share: Amounts
    borrowed: Amounts
    next_end_ms: int | None
    """When the next of its allocations ends that has promised to."""


@dataclass(frozen=True, slots=True)
class PreemptionCandidate:
    """Somebody who could be preempted for it: the rule that allows it, or why none does."""

    request: str
    component: str
    rule: str | None
    why_not: str | None


@dataclass(frozen=True, slots=True)
class PreemptionView:
    """Whether others could be stopped for it, and what came of that."""

    considered: bool
    code: str
    reason: str
    candidates: tuple[PreemptionCandidate, ...] = ()
    more: int = 0
    """Candidates beyond those told."""
    leaving: tuple[str, ...] = ()
    """Who is leaving for it."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """When it may start. `latest_ms` is None where nothing bounds it."""

    earliest_ms: int
    likely_ms: int
    latest_ms: int | None
    basis: str


@dataclass(frozen=True, slots=True)
class PoolExplanation:
    """Why it waits in one pool."""

    status: QueueStatus
    keys: Mapping[str, KeyView]
    holders: tuple[PolicyHolding, ...]
    preemption: PreemptionView
    would_start_if: str
    more_holders: int = 0
    """Holders beyond those told."""
    estimate: Estimate | None = None
    no_estimate: str | None = None
    """Why there is none."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The whole answer to why: of what does not wait the sentence alone."""

    request: Request
    sentence: str
    pools: tuple[PoolExplanation, ...] = ()
