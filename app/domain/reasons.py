"""Why a request was refused, ended or not granted: every code there is, with its sentence for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from app.domain.request_origin import NO_ORIGIN, Origin


class ReasonCode(StrEnum):
    """A named reason."""

    NO_POLICY = "no_policy"
    MISSING_KEY = "missing_key"
    EXCEEDS_CAPACITY = "exceeds_capacity"
    EXCEEDS_LIMIT = "exceeds_limit"
    EXCEEDS_RESERVED = "exceeds_reserved"
    TOO_MANY_TENANTS = "too_many_tenants"
    LEASE_LAPSED = "lease_lapsed"
    WORKER_LOST = "worker_lost"
    NOT_STARTED = "not_started"
    NOT_POLLED = "not_polled"
    DROPPED = "dropped"
    PRIORITY = "priority"
    RECLAIM = "reclaim"
    SENSITIVE = "sensitive"
    STARVATION = "starvation"
    AGGRESSIVE_STARVATION = "aggressive_starvation"
    LIMIT = "limit"


REASON_TEXTS: dict[ReasonCode, str] = {
    ReasonCode.NO_POLICY: "no pool has a policy for this component",
    ReasonCode.MISSING_KEY: "asks {asked} of {key}, which the pool does not have",
    ReasonCode.EXCEEDS_CAPACITY: "asks {asked} of {key}; the pool has {bound} in all",
    ReasonCode.EXCEEDS_LIMIT: "asks {asked} of {key}; the limit of {account} is {bound}",
    ReasonCode.EXCEEDS_RESERVED: "is not preemptible and asks {asked} of {key}; {account} has {bound} reserved",
    ReasonCode.TOO_MANY_TENANTS: "the template of {account} has {asked} policies; template_max is {bound}",
    ReasonCode.LEASE_LAPSED: "no heartbeat came before the lease lapsed",
    ReasonCode.WORKER_LOST: "the process that did its work is gone",
    ReasonCode.NOT_STARTED: "no worker began it in time",
    ReasonCode.NOT_POLLED: "nobody asked for it while it was queued",
    ReasonCode.DROPPED: "an operator dropped it",
    ReasonCode.PRIORITY: "preempted for {by}, which ranks higher",
    ReasonCode.RECLAIM: "preempted for {by}, which fits into what its policy has reserved",
    ReasonCode.SENSITIVE: "preempted for {by}, which is of class 10",
    ReasonCode.STARVATION: "preempted for {by}, whose policy has been below its fair share for too long",
    ReasonCode.AGGRESSIVE_STARVATION: "preempted for {by}, whose policy has been far too long below its fair share",
    ReasonCode.LIMIT: "preempted as its policy, a group above it or the pool was over its limit",
}


@dataclass(frozen=True, slots=True)
class PoolRefusal:
    """Why one pool could never grant a request."""

    pool: str
    code: ReasonCode
    key: str
    requested: int
    bound: int
    account: str

    @property
    def message(self) -> str:
        """The sentence, with its numbers."""
        return f"{self.pool}: " + REASON_TEXTS[self.code].format(
            asked=self.requested, key=self.key, bound=self.bound, account=self.account.replace(":", " ", 1)
        )


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a request is where it is; of a rejected one also what each pool said, of a preempted one for whom."""

    code: ReasonCode
    pools: tuple[PoolRefusal, ...] = ()
    by: str | None = None
    by_origin: Origin = NO_ORIGIN

    @property
    def message(self) -> str:
        """One sentence for people."""
        return self._sentence(f"request {self.by}" if self.by else "another request")

    @property
    def message_with_origin(self) -> str:
        """The same sentence, with the origin of the other request: for readers who may see the component of that."""
        return self._sentence(f"request {self.by} ({self.by_origin})") if self.by and any(self.by_origin) else self.message

    def _sentence(self, by: str) -> str:
        return "; ".join(pool.message for pool in self.pools) or REASON_TEXTS[self.code].format(by=by)
