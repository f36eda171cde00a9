"""The reasons why a request was refused, ended or not granted: all codes, each with its sentence for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

from app.domain.names import account_name
from app.domain.request_origin import NO_ORIGIN, Origin


class ReasonCode(StrEnum):
    """A named reason."""

    NO_POLICY = "no_policy"
    UNKNOWN_POOL = "unknown_pool"
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
    ReasonCode.NO_POLICY: "no pool has a policy for {component}",
    ReasonCode.UNKNOWN_POOL: "there is no such pool",
    ReasonCode.MISSING_KEY: "asks {asked} of {key}, which the pool does not have",
    ReasonCode.EXCEEDS_CAPACITY: "asks {asked} of {key}; the pool has {bound} in all",
    ReasonCode.EXCEEDS_LIMIT: "asks {asked} of {key}; the limit of {account} is {bound}",
    ReasonCode.EXCEEDS_RESERVED: "is not preemptible and asks {asked} of {key}; {account} has {bound} reserved",
    ReasonCode.TOO_MANY_TENANTS: "the template of {account} has {asked} instances; template_max is {bound}",
    ReasonCode.LEASE_LAPSED: "no heartbeat came before the lease lapsed",
    ReasonCode.WORKER_LOST: "the process of its work was lost",
    ReasonCode.NOT_STARTED: "no worker started it before its start deadline",
    ReasonCode.NOT_POLLED: "no client polled it within its queue TTL",
    ReasonCode.DROPPED: "an operator dropped it",
    ReasonCode.PRIORITY: "preempted for {by}, which ranks higher",
    ReasonCode.RECLAIM: "preempted for {by}, which fits into what its policy has reserved",
    ReasonCode.SENSITIVE: "preempted for {by}, which has preemption class 10",
    ReasonCode.STARVATION: "preempted for {by}, whose policy has been below its fair share for too long",
    ReasonCode.AGGRESSIVE_STARVATION: "preempted for {by}, whose policy starves aggressively below its fair share",
    ReasonCode.LIMIT: "preempted because its policy, a group above it or the pool was over its limit",
}


def loss_text(reason: str) -> str:
    """Return why a request lost its units: the sentence of a reason, or its code if the sentence needs other values."""
    text = next((text for code, text in REASON_TEXTS.items() if code == reason), reason)
    return reason if "{" in text else text


CUT_MARK = "..."
"""The last item of a list that was cut."""

POOL_WITHOUT_POLICY = "has no policy for this component"
"""The sentence of `no_policy` for a pool that the request names."""


@dataclass(frozen=True, slots=True)
class PoolRefusal:
    """The reason why one pool can never grant a request. A refusal without a key has no numbers."""

    pool: str
    code: ReasonCode
    key: str
    requested: int
    bound: int
    account: str

    @property
    def message(self) -> str:
        """Return the sentence with its numbers."""
        text = POOL_WITHOUT_POLICY if self.code is ReasonCode.NO_POLICY else REASON_TEXTS[self.code]
        return f"{self.pool}: " + text.format(
            asked=self.requested, key=self.key, bound=self.bound, account=account_name(self.account)
        )


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason of a request's state. A rejection has the refusal of each pool, a preemption the preemptor."""

    code: ReasonCode
    pools: tuple[PoolRefusal, ...] = ()
    by: str | None = None
    by_origin: Origin = NO_ORIGIN
    component: str | None = None
    """The component in its short form, for `no_policy`."""
    key_pools: KeyPools | None = None
    """The pools with the asked keys, if the request was rejected because every pool lacks a key or a policy."""

    @property
    def message(self) -> str:
        """Return the reason as one sentence."""
        return self._sentence(f"request {self.by}" if self.by else "another request")

    @property
    def message_with_origin(self) -> str:
        """Return the message with the origin of the other request, for readers that may see the component of that request."""
        return self._sentence(f"request {self.by} ({self.by_origin})") if self.by and any(self.by_origin) else self.message

    def _sentence(self, by: str) -> str:
        if self.key_pools and (self.pools or self.code is ReasonCode.NO_POLICY):
            return describe_rejection(self)
        refusals = [pool for pool in self.pools if pool.code is not ReasonCode.MISSING_KEY] or self.pools
        return "; ".join(pool.message for pool in refusals) or REASON_TEXTS[self.code].format(by=by, component=self.component)


@dataclass(frozen=True, slots=True)
class KeyPools:
    """The pools of the workspace when a request was rejected, and those of them that have each asked key.

    The pools of the request's component come first.
    """

    names: tuple[str, ...]
    """All pools. A list that is cut ends with `CUT_MARK`."""
    complete: tuple[str, ...]
    """The pools that have every asked key."""
    by_key: Mapping[str, tuple[str, ...]]
    """Asked key → the pools that have it. Keys that are unbounded in a pool without them are not here."""
    read_all: bool = True
    """False if the workspace has more pools than were read."""
    is_named: bool = False
    """True if the request names pools."""


def describe_rejection(reason: Reason) -> str:
    """Return why no pool can grant a request: every pool lacks a key or a policy, or does not exist.

    1. Pools that the request names and that do not exist, or have no policy for its component.
    2. The keys, and the pools that have them.
    """
    pools = reason.key_pools
    assert pools
    sentences = [
        refusal.message + (_similar_pools(refusal.pool, pools) if refusal.code is ReasonCode.UNKNOWN_POOL else "")
        for refusal in reason.pools
        if refusal.code is not ReasonCode.MISSING_KEY
    ]
    if not reason.pools:
        sentences.append(REASON_TEXTS[ReasonCode.NO_POLICY].format(component=reason.component))
    lacking = [refusal for refusal in reason.pools if refusal.code is ReasonCode.MISSING_KEY]
    if pools.by_key and (lacking or not reason.pools):
        sentences += _describe_keys(lacking, pools)
    return "; ".join(sentences)


def _describe_keys(lacking: Sequence[PoolRefusal], pools: KeyPools) -> list[str]:
    """Return the sentences about the asked keys: those that no pool has, the pools that have all of them, or the pools of
    each."""
    absent = [key for key, names in pools.by_key.items() if not names]
    if absent and pools.read_all:
        return [f"no pool has {join_words(absent)}"]
    messages = [refusal.message for refusal in lacking]
    keys = join_words([*pools.by_key])
    if pools.complete:
        but = ", but no policy for this component" if lacking and not pools.is_named else ""
        noun, verb = ("pool", "has") if len(pools.complete) == 1 else ("pools", "have")
        return [*messages, f"{noun} {join_words(pools.complete)} {verb} {keys}{but}"]
    if len(pools.by_key) > 1 and pools.read_all:
        places = ", ".join(f"{key} is in {join_words(names)}" for key, names in pools.by_key.items())
        return [f"no single pool has {keys}: {places}; all that one request asks for has to be in one pool"]
    return messages


def _similar_pools(name: str, pools: KeyPools) -> str:
    """Return a hint with the pools of similar names, else with the existing pools."""
    if not pools.names:
        return "; there are no pools"
    if similar := get_close_matches(name, pools.names, cutoff=0.6):
        return f"; did you mean {' or '.join(similar)}?"
    return f"; the pools are {join_words(pools.names)}" if len(pools.names) > 1 else f"; the only pool is {pools.names[0]}"


def join_words(words: Sequence[str]) -> str:
    """Return the words as a list in a sentence: `this, that and more`."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
