"""What is said to people about who waits, and about who does not: one sentence, and what would have to happen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from app.domain.explanations import AccountUsage, Explanation, PoolExplanation, QueueState, QueueStatus, Shortfall, WaitReason
from app.domain.models import Request
from app.domain.states import HOLDING_STATES
from app.domain.states import RequestState as Status

ENDED: Mapping[Status, str] = {
    Status.RELEASED: "has ended, and its units were given back",
    Status.PREEMPTED: "has ended, as it has no retries left",
    Status.EXPIRED: "has expired",
    Status.CANCELLED: "left the queue",
    Status.REJECTED: "was rejected, as it could never be granted",
}


def describe_state(request: Request) -> str:
    """Of a request that does not wait: where it is, and why."""
    why = f": {request.reason.message}" if request.reason else ""
    if request.status in HOLDING_STATES:
        leaves = " and has to leave" if request.status is Status.PREEMPTING else ""
        where = f"in {request.pool}" if request.pool else "outside all pools"
        return f"Request {request.id} holds {format_units(request.resources.items())} {where}{leaves}{why}."
    return f"Request {request.id} {ENDED[request.status]}{why}."


def describe_waiting(request: Request, pools: Sequence[PoolExplanation]) -> str:
    """Of one that waits: where, and what keeps it there."""
    if not pools:
        return f"Request {request.id} waits in no pool just now: the pools of its component are being changed."
    told = [f"{_place(pool.status)}: {_why(pool)}" for pool in pools]
    return f"Request {request.id} waits {'; and '.join(told)}."


def anonymize(told: Explanation) -> Explanation:
    """The same for somebody who is not to learn the ids of others' requests."""
    if not told.pools:
        by = told.request.preempted_by
        return replace(told, sentence=told.sentence.replace(f"request {by}", "another request")) if by else told
    pools = tuple(anonymize_view(pool) for pool in told.pools)
    return replace(told, pools=pools, sentence=describe_waiting(told.request, pools))


def anonymize_view(view: PoolExplanation) -> PoolExplanation:
    """Why it waits in one pool, in the same way."""
    standing = _unnamed(view.status)
    return replace(view, status=standing, would_start_if=start_condition(standing))


def _unnamed(at: QueueStatus) -> QueueStatus:
    return replace(at, patience_owner="", blocker="" if at.state is QueueState.LINE else at.blocker)


def format_units(amounts: Iterable[tuple[str, int]], *, all_keys: bool = False) -> str:
    """`2 gpu and 4000 mcpu`; unless `all_keys` are told, the slot that everybody holds is left out."""
    some = [f"{number} {key}" for key, number in amounts if all_keys or key != "step_run"]
    return join_words(some) or "its slot"


def join_words(some: Sequence[str]) -> str:
    """`this, that and more`."""
    return " and ".join([", ".join(some[:-1]), some[-1]] if len(some) > 1 else some)


def describe_elsewhere(standing: QueueStatus) -> str:
    """Of one for whom others leave in another pool: why nobody is stopped for it in this one."""
    return f"others are leaving for it in {standing.blocker}, so nobody is stopped for it here"


def describe_victims(count: int) -> str:
    """Of one for whom that many others are leaving."""
    if not count:
        return "those who were stopped for it have left"
    return f"{count} {'other is' if count == 1 else 'others are'} leaving for it"


def start_condition(standing: QueueStatus) -> str:
    """What would have to happen for it to be granted."""
    if standing.state is QueueState.OWNER:
        return "all who are leaving for it, and for those who are served before it, have left"
    steps = []
    if standing.state is QueueState.LINE:
        steps.append(f"{_request(standing.blocker)}, the first in the line, is granted or leaves the queue")
    elif standing.state is QueueState.SETTLING:
        steps.append("the queue has been put in order")
    elif standing.position > 1:
        steps.append(_before(standing))
    steps += [_would(standing, account, lacks) for account, lacks in _by_account(standing.shortfalls).items()]
    return ", and ".join(steps) or "it is looked at again"


def _before(standing: QueueStatus) -> str:
    """Of those who stand before it."""
    count = standing.position - 1
    if count == 1:
        return f"the one before it is served or {'leaves the queue' if standing.strict else 'does not fit'}"
    return f"the {count} before it are served or {'leave the queue' if standing.strict else 'do not fit'}"


def _by_account(lacks: Sequence[Shortfall]) -> dict[str, list[Shortfall]]:
    """By account what lacks most of each key, whatever for."""
    most: dict[tuple[str, str, bool], Shortfall] = {}
    for lack in lacks:
        at = (lack.account, lack.key, lack.kind == "fixed")
        if at not in most or most[at].missing < lack.missing:
            most[at] = lack
    found: dict[str, list[Shortfall]] = {}
    for lack in most.values():
        found.setdefault(lack.account, []).append(lack)
    return found


def _would(standing: QueueStatus, account: str, lacks: Sequence[Shortfall]) -> str:
    fixed, others = [one for one in lacks if one.kind == "fixed"], [one for one in lacks if one.kind != "fixed"]
    told = []
    if fixed:
        told.append(f"others of {_named(account)} that are not preemptible give back {_lacking(fixed)}")
    if others:
        beyond = " beyond what is kept for others" if any(one.kind != "limit" for one in others) else ""
        comes = "comes" if [one.missing for one in others] == [1] else "come"
        told.append(f"{_lacking(others)} {comes} free in {_named(account, standing.pool)}{beyond}")
    return " and ".join(told)


def _lacking(lacks: Sequence[Shortfall]) -> str:
    return format_units(((lack.key, lack.missing) for lack in lacks), all_keys=True)


def _request(id_: str) -> str:
    return f"request {id_}" if id_ else "another request"


def _named(account: str, pool: str = "the pool") -> str:
    return pool if account == "pool" else account.replace(":", " ", 1)


def describe_briefly(standing: QueueStatus, *, named: bool) -> str:
    """Why it waits in one pool, where there is no room for more, with the ids of others or without."""
    standing = standing if named else _unnamed(standing)
    if standing.wait_reason is WaitReason.WAITING_FOR_VICTIMS:
        return "others are leaving for it"
    return _kept_back(standing)


def _place(standing: QueueStatus) -> str:
    return f"in {standing.pool} as number {standing.position} of {standing.waiter_count}"


def _why(view: PoolExplanation) -> str:
    standing = view.status
    if standing.wait_reason is WaitReason.WAITING_FOR_VICTIMS:
        count = len(view.preemption.leaving)
        rest = "" if count else f", and {'more has to come free' if standing.shortfalls else 'it is about to be granted'}"
        return describe_victims(count) + rest
    return _kept_back(standing)


def _kept_back(standing: QueueStatus) -> str:
    verdict = standing.wait_reason
    if verdict is WaitReason.BEHIND:
        return _behind(standing)
    lack = standing.blocking
    assert lack is not None
    at = standing.usage_of(lack)
    needs = f"it needs {lack.needed} {lack.key}"
    if verdict is WaitReason.NO_CAPACITY:
        return f"{needs}, and {_free(lack, at, standing.pool)}{_kept_for_it(standing)}"
    if verdict is WaitReason.HELD:
        whom = _request(standing.patience_owner) if lack.kind == "held" else "requests that others are leaving for"
        return f"{needs}, and what is free in {_named(lack.account, standing.pool)} is kept for {whom}"
    if verdict is WaitReason.OVER_RESERVED:
        taken = f"of the {at.reserved} reserved for {_named(lack.account)}, others that are not preemptible hold {at.fixed}"
        return f"it is not preemptible and needs {lack.needed} {lack.key}, but {taken}"
    return f"{needs}, and {_named(lack.account)} uses {at.used} of the {at.limit} that it may use at most"


def _free(lack: Shortfall, at: AccountUsage, pool: str) -> str:
    if at.limit is not None:
        return f"{max(0, lack.available)} of {at.limit} {'is' if lack.available == 1 else 'are'} free"
    return f"there is none in {pool}" if lack.available <= 0 else f"no more than {lack.available} can be counted in {pool}"


def _kept_for_it(standing: QueueStatus) -> str:
    return "; what comes free is kept for it" if standing.state is QueueState.PATIENT else ""


def _behind(standing: QueueStatus) -> str:
    if standing.state is QueueState.LINE:
        return f"there is room for it, but the queue is strict and {_request(standing.blocker)} is before it"
    if standing.state is QueueState.ELSEWHERE:
        return f"others are leaving for it in {standing.blocker}"
    if standing.state is QueueState.SETTLING:
        return "the pool was changed just now, and its queue is being put in order"
    return "there is room for it, and it is about to be looked at"
