"""The sentences of explanations: the state of a request, the reasons why it waits, and the condition for its grant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from app.domain.explanations import AccountUsage, Explanation, PoolExplanation, QueueState, QueueStatus, Shortfall, WaitReason
from app.domain.models import Request
from app.domain.names import account_name
from app.domain.reasons import join_words as join_words
from app.domain.states import HOLDING_STATES
from app.domain.states import RequestState as RequestState

ENDED: Mapping[RequestState, str] = {
    RequestState.RELEASED: "has ended, and its units were given back",
    RequestState.PREEMPTED: "has ended, as it has no retries left",
    RequestState.EXPIRED: "has expired",
    RequestState.CANCELLED: "left the queue",
    RequestState.REJECTED: "was rejected, as it could never be granted",
}


def describe_state(request: Request) -> str:
    """Return the sentence about a request that does not wait: its state, and the reason."""
    why = f": {request.reason.message}" if request.reason else ""
    if request.status in HOLDING_STATES:
        leaves = " and has to leave" if request.status is RequestState.PREEMPTING else ""
        where = f"in {request.pool}" if request.pool else "outside all pools"
        return f"Request {request.id} holds {format_units(request.resources.items())} {where}{leaves}{why}."
    return f"Request {request.id} {ENDED[request.status]}{why}."


def describe_waiting(request: Request, pools: Sequence[PoolExplanation]) -> str:
    """Return the sentence about a waiter: its positions, and the constraint in each pool."""
    if not pools:
        return f"Request {request.id} waits in no pool just now: the pools of its component are being changed."
    sentences = [f"{_position(pool.status)}: {_wait_reason_text(pool)}" for pool in pools]
    return f"Request {request.id} waits {'; and '.join(sentences)}."


def anonymize(explanation: Explanation) -> Explanation:
    """Return the explanation without the ids of other requests."""
    if not explanation.pools:
        preemptor = explanation.request.preempted_by
        return (
            replace(explanation, sentence=explanation.sentence.replace(f"request {preemptor}", "another request"))
            if preemptor
            else explanation
        )
    pools = tuple(anonymize_view(pool) for pool in explanation.pools)
    return replace(explanation, pools=pools, sentence=describe_waiting(explanation.request, pools))


def anonymize_view(view: PoolExplanation) -> PoolExplanation:
    """Return the explanation for one pool without the ids of other requests."""
    status = _anonymize_status(view.status)
    return replace(view, status=status, would_start_if=start_condition(status))


def _anonymize_status(status: QueueStatus) -> QueueStatus:
    return replace(status, patience_owner="", blocker="" if status.state is QueueState.LINE else status.blocker)


def format_units(amounts: Iterable[tuple[str, int]], *, all_keys: bool = False) -> str:
    """Return amounts as `2 gpu and 4000 mcpu`. Without `all_keys` the slot that every request holds is left out."""
    texts = [f"{number} {key}" for key, number in amounts if all_keys or key != "step_run"]
    return join_words(texts) or "its slot"


def describe_elsewhere(status: QueueStatus) -> str:
    """Return why no victim is chosen in this pool for a waiter with victims in another pool."""
    return f"victims are leaving for it in {status.blocker}, so none is chosen here"


def describe_victims(count: int) -> str:
    """Return the sentence about a waiter with this number of victims."""
    if not count:
        return "the allocations that were preempted for it have left"
    return f"{count} {'victim is' if count == 1 else 'victims are'} leaving for it"


def start_condition(status: QueueStatus) -> str:
    """Return the sentence about the condition for the grant."""
    if status.state is QueueState.OWNER:
        return "all victims that are leaving for it, and for requests that are served before it, have left"
    steps = []
    if status.state is QueueState.LINE:
        steps.append(f"{_request_name(status.blocker)}, the first in the line, is granted or leaves the queue")
    elif status.state is QueueState.SETTLING:
        steps.append("the queue has been put in order")
    elif status.position > 1:
        steps.append(_waiters_ahead(status))
    steps += [
        _needed_release(status, account, shortfalls) for account, shortfalls in _largest_by_account(status.shortfalls).items()
    ]
    return ", and ".join(steps) or "the queue is checked again"


def _waiters_ahead(status: QueueStatus) -> str:
    """Return the part of the condition about the waiters ahead."""
    count = status.position - 1
    if count == 1:
        return f"the one before it is served or {'leaves the queue' if status.strict else 'does not fit'}"
    return f"the {count} before it are served or {'leave the queue' if status.strict else 'do not fit'}"


def _largest_by_account(shortfalls: Sequence[Shortfall]) -> dict[str, list[Shortfall]]:
    """Return account → its shortfalls: for each key, and for fixed work apart, the one with the most missing units."""
    largest: dict[tuple[str, str, bool], Shortfall] = {}
    for shortfall in shortfalls:
        key = (shortfall.account, shortfall.key, shortfall.kind == "fixed")
        if key not in largest or largest[key].missing < shortfall.missing:
            largest[key] = shortfall
    by_account: dict[str, list[Shortfall]] = {}
    for shortfall in largest.values():
        by_account.setdefault(shortfall.account, []).append(shortfall)
    return by_account


def _needed_release(status: QueueStatus, account: str, shortfalls: Sequence[Shortfall]) -> str:
    fixed_shortfalls, other_shortfalls = (
        [shortfall for shortfall in shortfalls if shortfall.kind == "fixed"],
        [shortfall for shortfall in shortfalls if shortfall.kind != "fixed"],
    )
    texts = []
    if fixed_shortfalls:
        texts.append(f"other non-preemptible requests of {account_name(account)} release {_missing_units(fixed_shortfalls)}")
    if other_shortfalls:
        beyond = " beyond the units held for others" if any(shortfall.kind != "limit" for shortfall in other_shortfalls) else ""
        comes = "comes" if [shortfall.missing for shortfall in other_shortfalls] == [1] else "come"
        texts.append(f"{_missing_units(other_shortfalls)} {comes} free in {account_name(account, status.pool)}{beyond}")
    return " and ".join(texts)


def _missing_units(shortfalls: Sequence[Shortfall]) -> str:
    return format_units(((shortfall.key, shortfall.missing) for shortfall in shortfalls), all_keys=True)


def _request_name(id_: str) -> str:
    return f"request {id_}" if id_ else "another request"


def describe_briefly(status: QueueStatus, *, with_ids: bool) -> str:
    """Return a short reason why a request waits in one pool. `with_ids` names other requests by id."""
    status = status if with_ids else _anonymize_status(status)
    if status.wait_reason is WaitReason.WAITING_FOR_VICTIMS:
        return "victims are leaving for it"
    return _blocked_reason(status)


def describe_summary(request: Request, statuses: Sequence[QueueStatus], *, with_ids: bool) -> str:
    """Return one sentence why a queued request waits. `with_ids` names other requests by id."""
    if not statuses:
        return describe_waiting(request, ())
    sentences = [f"{_position(status)}: {describe_briefly(status, with_ids=with_ids)}" for status in statuses]
    return f"Request {request.id} waits {'; and '.join(sentences)}."


def _position(status: QueueStatus) -> str:
    return f"in {status.pool} as number {status.position} of {status.waiter_count}"


def _wait_reason_text(view: PoolExplanation) -> str:
    status = view.status
    if status.wait_reason is WaitReason.WAITING_FOR_VICTIMS:
        count = len(view.preemption.leaving)
        rest = "" if count else f", and {'more has to come free' if status.shortfalls else 'it is about to be granted'}"
        return describe_victims(count) + rest
    return _blocked_reason(status)


def _blocked_reason(status: QueueStatus) -> str:
    wait_reason = status.wait_reason
    if wait_reason is WaitReason.BEHIND:
        return _behind_text(status)
    shortfall = status.blocking
    assert shortfall is not None
    usage = status.usage_of(shortfall)
    needs = f"it needs {shortfall.needed} {shortfall.key}"
    if wait_reason is WaitReason.NO_CAPACITY:
        return f"{needs}, and {_free_text(shortfall, usage, status.pool)}{_patience_text(status)}"
    if wait_reason is WaitReason.HELD:
        beneficiary = (
            _request_name(status.patience_owner) if shortfall.kind == "patience_held" else "requests with leaving victims"
        )
        return f"{needs}, and the free units of {account_name(shortfall.account, status.pool)} are held for {beneficiary}"
    if wait_reason is WaitReason.OVER_RESERVED:
        account = account_name(shortfall.account)
        allocations = f"other non-preemptible requests use {usage.fixed}"
        needs = f"it is not preemptible and needs {shortfall.needed} {shortfall.key}"
        return f"{needs}, but of the {usage.reserved} reserved for {account}, {allocations}"
    return f"{needs}, and {account_name(shortfall.account)} uses {usage.used} of the {usage.limit} that it may use at most"


def _free_text(shortfall: Shortfall, usage: AccountUsage, pool: str) -> str:
    if usage.limit is not None:
        return f"{max(0, shortfall.available)} of {usage.limit} {'is' if shortfall.available == 1 else 'are'} free"
    return (
        f"there is none in {pool}"
        if shortfall.available <= 0
        else f"no more than {shortfall.available} can be counted in {pool}"
    )


def _patience_text(status: QueueStatus) -> str:
    return "; units that come free are held for it" if status.state is QueueState.PATIENT else ""


def _behind_text(status: QueueStatus) -> str:
    if status.state is QueueState.LINE:
        return f"there is room for it, but the queue is strict and {_request_name(status.blocker)} is before it"
    if status.state is QueueState.ELSEWHERE:
        return f"victims are leaving for it in {status.blocker}"
    if status.state is QueueState.SETTLING:
        return "the pool was changed just now, and its queue is being put in order"
    return "there is room for it, and it is about to be checked"
