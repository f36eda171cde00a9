"""What is said to people about who waits, and about who does not: one sentence, and what would have to happen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from app.domain.explanations import Explanation, Lack, Numbers, PoolView, Standing, State, Verdict
from app.domain.models import Request
from app.domain.states import LIVE
from app.domain.states import State as Status

ENDED: Mapping[Status, str] = {
    Status.RELEASED: "has ended, and its units were given back",
    Status.PREEMPTED: "has ended, as it has no retries left",
    Status.EXPIRED: "has expired",
    Status.CANCELLED: "left the queue",
    Status.REJECTED: "was rejected, as it could never be granted",
}


def of_state(request: Request) -> str:
    """Of a request that does not wait: where it is, and why."""
    why = f": {request.reason.message}" if request.reason else ""
    if request.status in LIVE:
        leaves = " and has to leave" if request.status is Status.PREEMPTING else ""
        where = f"in {request.pool}" if request.pool else "outside all pools"
        return f"Request {request.id} holds {units(request.resources.items())} {where}{leaves}{why}."
    return f"Request {request.id} {ENDED[request.status]}{why}."


def of_waiting(request: Request, pools: Sequence[PoolView]) -> str:
    """Of one that waits: where, and what keeps it there."""
    if not pools:
        return f"Request {request.id} waits in no pool just now: the pools of its component are being changed."
    told = [f"{_place(pool.standing)}: {_why(pool)}" for pool in pools]
    return f"Request {request.id} waits {'; and '.join(told)}."


def unnamed(told: Explanation) -> Explanation:
    """The same for somebody who is not to learn the ids of others' requests."""
    if not told.pools:
        by = told.request.preempted_by
        return replace(told, sentence=told.sentence.replace(f"request {by}", "another request")) if by else told
    pools = tuple(unnamed_view(pool) for pool in told.pools)
    return replace(told, pools=pools, sentence=of_waiting(told.request, pools))


def unnamed_view(view: PoolView) -> PoolView:
    """Why it waits in one pool, in the same way."""
    standing = _unnamed(view.standing)
    return replace(view, standing=standing, would_start_if=would_start_if(standing))


def _unnamed(at: Standing) -> Standing:
    return replace(at, bound_by="", other="" if at.state is State.LINE else at.other)


def units(amounts: Iterable[tuple[str, int]], *, all_keys: bool = False) -> str:
    """`2 gpu and 4000 mcpu`; unless `all_keys` are told, the slot that everybody holds is left out."""
    some = [f"{number} {key}" for key, number in amounts if all_keys or key != "step_run"]
    return listed(some) or "its slot"


def listed(some: Sequence[str]) -> str:
    """`this, that and more`."""
    return " and ".join([", ".join(some[:-1]), some[-1]] if len(some) > 1 else some)


def elsewhere(standing: Standing) -> str:
    """Of one for whom others leave in another pool: why nobody is stopped for it in this one."""
    return f"others are leaving for it in {standing.other}, so nobody is stopped for it here"


def leaving(count: int) -> str:
    """Of one for whom that many others are leaving."""
    if not count:
        return "those who were stopped for it have left"
    return f"{count} {'other is' if count == 1 else 'others are'} leaving for it"


def would_start_if(standing: Standing) -> str:
    """What would have to happen for it to be granted."""
    if standing.state is State.OWNER:
        return "all who are leaving for it, and for those who are served before it, have left"
    steps = []
    if standing.state is State.LINE:
        steps.append(f"{_request(standing.other)}, the first in the line, is granted or leaves the queue")
    elif standing.state is State.SETTLING:
        steps.append("the queue has been put in order")
    elif standing.position > 1:
        steps.append(_before(standing))
    steps += [_would(standing, account, lacks) for account, lacks in _by_account(standing.lacks).items()]
    return ", and ".join(steps) or "it is looked at again"


def _before(standing: Standing) -> str:
    """Of those who stand before it."""
    count = standing.position - 1
    if count == 1:
        return f"the one before it is served or {'leaves the queue' if standing.strict else 'does not fit'}"
    return f"the {count} before it are served or {'leave the queue' if standing.strict else 'do not fit'}"


def _by_account(lacks: Sequence[Lack]) -> dict[str, list[Lack]]:
    """By account what lacks most of each key, whatever for."""
    most: dict[tuple[str, str, bool], Lack] = {}
    for lack in lacks:
        at = (lack.account, lack.key, lack.kind == "fixed")
        if at not in most or most[at].lacking < lack.lacking:
            most[at] = lack
    found: dict[str, list[Lack]] = {}
    for lack in most.values():
        found.setdefault(lack.account, []).append(lack)
    return found


def _would(standing: Standing, account: str, lacks: Sequence[Lack]) -> str:
    fixed, others = [one for one in lacks if one.kind == "fixed"], [one for one in lacks if one.kind != "fixed"]
    told = []
    if fixed:
        told.append(f"others of {_named(account)} that are not preemptible give back {_lacking(fixed)}")
    if others:
        beyond = " beyond what is kept for others" if any(one.kind != "limit" for one in others) else ""
        comes = "comes" if [one.lacking for one in others] == [1] else "come"
        told.append(f"{_lacking(others)} {comes} free in {_named(account, standing.pool)}{beyond}")
    return " and ".join(told)


def _lacking(lacks: Sequence[Lack]) -> str:
    return units(((lack.key, lack.lacking) for lack in lacks), all_keys=True)


def _request(id_: str) -> str:
    return f"request {id_}" if id_ else "another request"


def _named(account: str, pool: str = "the pool") -> str:
    return pool if account == "pool" else account.replace(":", " ", 1)


def short(standing: Standing, *, named: bool) -> str:
    """Why it waits in one pool, where there is no room for more, with the ids of others or without."""
    standing = standing if named else _unnamed(standing)
    if standing.verdict is Verdict.WAITING_FOR_VICTIMS:
        return "others are leaving for it"
    return _kept_back(standing)


def _place(standing: Standing) -> str:
    return f"in {standing.pool} as number {standing.position} of {standing.waiting}"


def _why(view: PoolView) -> str:
    standing = view.standing
    if standing.verdict is Verdict.WAITING_FOR_VICTIMS:
        count = len(view.preemption.leaving)
        rest = "" if count else f", and {'more has to come free' if standing.lacks else 'it is about to be granted'}"
        return leaving(count) + rest
    return _kept_back(standing)


def _kept_back(standing: Standing) -> str:
    verdict = standing.verdict
    if verdict is Verdict.BEHIND:
        return _behind(standing)
    lack = standing.blocking
    assert lack is not None
    at = standing.numbers_of(lack)
    needs = f"it needs {lack.needed} {lack.key}"
    if verdict is Verdict.NO_CAPACITY:
        return f"{needs}, and {_free(lack, at, standing.pool)}{_kept_for_it(standing)}"
    if verdict is Verdict.HELD:
        whom = _request(standing.bound_by) if lack.kind == "held" else "requests that others are leaving for"
        return f"{needs}, and what is free in {_named(lack.account, standing.pool)} is kept for {whom}"
    if verdict is Verdict.OVER_RESERVED:
        taken = f"of the {at.reserved} reserved for {_named(lack.account)}, others that are not preemptible hold {at.fixed}"
        return f"it is not preemptible and needs {lack.needed} {lack.key}, but {taken}"
    return f"{needs}, and {_named(lack.account)} uses {at.used} of the {at.limit} that it may use at most"


def _free(lack: Lack, at: Numbers, pool: str) -> str:
    if at.limit is not None:
        return f"{max(0, lack.room)} of {at.limit} {'is' if lack.room == 1 else 'are'} free"
    return f"there is none in {pool}" if lack.room <= 0 else f"no more than {lack.room} can be counted in {pool}"


def _kept_for_it(standing: Standing) -> str:
    return "; what comes free is kept for it" if standing.state is State.PATIENT else ""


def _behind(standing: Standing) -> str:
    if standing.state is State.LINE:
        return f"there is room for it, but the queue is strict and {_request(standing.other)} is before it"
    if standing.state is State.ELSEWHERE:
        return f"others are leaving for it in {standing.other}"
    if standing.state is State.SETTLING:
        return "the pool was changed just now, and its queue is being put in order"
    return "there is room for it, and it is about to be looked at"
