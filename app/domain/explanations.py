"""Why somebody waits: what the rules that decide said, where it stands, who holds the units, and what would have to happen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from app.domain.amounts import Amounts
from app.domain.models import Request
from app.domain.snapshot import Waiter


class Verdict(StrEnum):
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


class State(StrEnum):
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
class Lack:
    """A constraint of an account that it does not meet: how much of a key it needs there, and how much room there is.

    The kind is `limit`, `fixed` (what is reserved for those that are not preemptible), `cleared` (kept by holds with victims)
    or `held` (by that of patience).
    """

    kind: str
    account: str
    key: str
    needed: int
    room: int

    @property
    def lacking(self) -> int:
        """How much more there would have to be."""
        return self.needed - self.room

    @property
    def verdict(self) -> Verdict:
        """What is said of it."""
        if self.kind in ("cleared", "held"):
            return Verdict.HELD
        if self.kind == "fixed":
            return Verdict.OVER_RESERVED
        kind = self.account.partition(":")[0]
        return {"policy": Verdict.OVER_LIMIT, "group": Verdict.GROUP_LIMIT}.get(kind, Verdict.NO_CAPACITY)


@dataclass(frozen=True, slots=True)
class Numbers:
    """One key of one account on the way from its policy to the pool. A limit is None where none counts."""

    account: str
    key: str
    limit: int | None
    reserved: int
    used: int
    fixed: int
    kept: int
    """For holds of others, as far as they bind it."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where it stands in the queue of one pool, and what the rules say to it."""

    pool: str
    position: int
    waiting: int
    """Who waits there in all."""
    state: State
    other: str
    """Of `elsewhere` the pool, of `line` who is the first."""
    bound_by: str
    """Whose hold of patience binds it."""
    strict: bool
    """Whether nobody is served before those who wait for capacity longer."""
    lacks: tuple[Lack, ...]
    numbers: tuple[Numbers, ...]
    event: str
    """What had happened last in the workspace."""
    rules: str
    """Which state of the pool's rules it is."""
    asker: Waiter
    """The request, as the planner sees it."""

    @property
    def verdict(self) -> Verdict:
        """The first that applies."""
        if self.state is State.OWNER:
            return Verdict.WAITING_FOR_VICTIMS
        found = {lack.verdict for lack in self.lacks}
        return next((verdict for verdict in Verdict if verdict in found), Verdict.BEHIND)

    @property
    def blocking(self) -> Lack | None:
        """What keeps it: of the lacks of its verdict the one that lacks most of what it needs."""
        some = [lack for lack in self.lacks if lack.verdict is self.verdict]
        return max(some, key=lambda lack: lack.lacking / lack.needed, default=None)

    def numbers_of(self, lack: Lack) -> Numbers:
        """Where it lacks that."""
        return next(one for one in self.numbers if (one.account, one.key) == (lack.account, lack.key))


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
class Holder:
    """A policy that holds units of the keys that are asked."""

    component: str
    used: Amounts
    in_share: Amounts
    borrowed: Amounts
    next_end_ms: int | None
    """When the next of its allocations ends that has promised to."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Somebody who could be preempted for it: the rule that allows it, or why none does."""

    request: str
    component: str
    rule: str | None
    why_not: str | None


@dataclass(frozen=True, slots=True)
class Preemption:
    """Whether others could be stopped for it, and what came of that."""

    considered: bool
    code: str
    reason: str
    candidates: tuple[Candidate, ...] = ()
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
class PoolView:
    """Why it waits in one pool."""

    standing: Standing
    keys: Mapping[str, KeyView]
    holders: tuple[Holder, ...]
    preemption: Preemption
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
    pools: tuple[PoolView, ...] = ()
