"""The refusals of a call: no such object, a broken rule, a conflict with the present state. A refusal is an answer, no bug."""

from __future__ import annotations

from typing import Final, Self

from app.domain.names import account_name
from app.domain.reasons import loss_text
from app.domain.workspace_limits import TEMPLATE_LIMIT, WORKSPACE_LIMITS


class Refusal(Exception):  # noqa: N818
    """A refusal of the service: a stable code and a sentence for people.

    `field` is the refused field of a declaration, dotted as in `pools.0.policies.2.reserved.gpu`; empty if there is none.
    """

    field = ""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    def at(self, field: str) -> Self:
        """Return this refusal with its field."""
        self.field = field
        return self


class NotFound(Refusal):
    """An object of the call does not exist."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"no_such_{kind}", f"there is no {kind} {name}")


class RuleViolation(Refusal):
    """A well-formed call that no state allows."""


class Conflict(Refusal):
    """A call that the present state does not allow."""


class RefusedDeclaration(Conflict):
    """A declaration that the present use of a pool does not allow. `account`: `pool`, `group:<name>`, `policy:<type/name>`."""

    def __init__(self, code: str, message: str, pool: str, account: str, key: str = "") -> None:
        super().__init__(code, message)
        self.pool, self.account, self.key = pool, account, key


class StaleFence(Conflict):
    """The fence of a call is not the present fence of the allocation. The units may be granted anew, so the caller has to
    stop."""

    def __init__(self, request: str, status: str, reason: str) -> None:
        because = f": {loss_text(reason)}" if reason else ""
        super().__init__("stale_fence", f"this fence holds nothing of {request}, which is {status}{because}")
        self.status, self.reason = status, reason


class LimitReached(Refusal):
    """A new request, pool or policy beyond a limit of the workspace, of a token, of a component or of a template.

    `subject` has the limit: `workspace`, `token/<id>`, `component/<type/name>` or `template/<type/prefix*>`.
    """

    def __init__(self, subject: str, name: str, limit: int, present: int) -> None:
        row = WORKSPACE_LIMITS.get(name, TEMPLATE_LIMIT)
        has = f"{subject.replace('/', ' ', 1)} has {present} {row.counted}"
        super().__init__(row.code, f"the {has}; {name} is {limit}")
        self.subject, self.name, self.limit, self.present = subject, name, limit, present


_RULE_REFUSALS: dict[str, tuple[type[Refusal], str]] = {
    "unknown_key": (RuleViolation, "the pool has no {key}; a policy or a group can only have keys of its pool"),
    "unknown_threshold_key": (
        RuleViolation,
        "non_preemptible_usage_threshold of {account} has {wants} of {key}; the pool has no {key}",
    ),
    "reserved_beyond_limit": (RuleViolation, "{account} reserves {wants} of {key}, more than its limit of {bound}"),
    "limit_beyond_capacity": (RuleViolation, "{account} limits {key} to {wants}; the pool has {bound}"),
    "overpromised": (RuleViolation, "the reserved shares in {account} add up to {wants} of {key}; it has {bound} to give"),
    "reserved_below_children": (RuleViolation, "{account} would reserve {wants} of {key}; its children reserve {bound}"),
    "circle": (RuleViolation, "{account} would be above itself"),
    "too_deep": (RuleViolation, "groups may be nested {bound} deep"),
    "no_capacity_left": (RuleViolation, "a pool has at least one key"),
    "too_many_keys": (RuleViolation, "a pool has at most {bound} keys; these would be {wants}"),
    "breaks_policy": (Conflict, "{account} reserves or is limited to {bound} of {key}; the pool would have {wants}"),
    "breaks_promises": (Conflict, "{bound} of {key} are reserved in all; the pool would have {wants}"),
    "key_in_use": (Conflict, "{bound} of {key} are held; a key can be removed when none is"),
    "moves_in_use": (Conflict, "{account} cannot move to another parent while it holds units"),
}


def rule_refusal(code: str, account: str, key: str, wants: str, bound: str) -> Refusal:
    """Return the exception for a refusal of a script about an account, a key, and two numbers that do not agree."""
    kind, sentence = _RULE_REFUSALS[code]
    return kind(code, sentence.format(account=account_name(account), key=key, wants=wants, bound=bound))


UNAVAILABLE_REASONS: Final = {
    "unreachable": "cannot be reached",
    "timeout": "does not answer in time",
    "denied": "refuses the user or password",
    "unsuitable": "is not a server that Poolkeeper can use",
    "loading": "is still loading its data",
    "busy": "is busy with another command",
    "failing_over": "has no working master at the moment",
    "not_acknowledged": "has too few replicas that confirm what is written",
    "read_only": "is read-only",
    "out_of_memory": "is out of memory",
    "not_persisting": "cannot persist what is written",
}
"""Reason → the words about Redis in the message of `StoreUnavailable`."""


class StoreUnavailable(Exception):  # noqa: N818 - a state of the world
    """Redis cannot serve now. `reason` is a key of UNAVAILABLE_REASONS; the message is one line for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
