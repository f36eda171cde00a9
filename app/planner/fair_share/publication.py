"""The statuses that the planner keeps beside the accounts of a pool: fair shares, starvation, limits exceeded, and times.

The scripts grant in the order of the published shares. So only the shares of policies with demand are published. Times are
published because no process remembers anything between two passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from app.domain.plan_steps import AccountUpdate, Publication
from app.domain.queue_score import SHARE_UNITS
from app.domain.snapshot import AccountSnapshot, PoolSnapshot, PublishedStatus
from app.planner.account_tree import POLICY, AccountTree
from app.planner.fair_share import satisfaction
from app.planner.fair_share.pool_shares import FairShares
from app.planner.fair_share.starvation import StarvationState, StarvationStatus, next_state
from app.planner.preemption.over_limit import OverLimitCheck


def starvation_states(snapshot: PoolSnapshot, shares: FairShares) -> dict[str, StarvationState]:
    """Return the starvation state of every group and policy: account → state."""
    return {
        name: _state(snapshot, shares, account) for name, account in snapshot.accounts.items() if account.parent is not None
    }


def _state(snapshot: PoolSnapshot, shares: FairShares, account: AccountSnapshot) -> StarvationState:
    published, queued = account.published, None
    if account.name.startswith(POLICY):
        queued = shares.inputs.queued_requests.get(account.name.removeprefix(POLICY), 0)
    previous = (
        StarvationState()
        if snapshot.has_void_starvation
        else StarvationState(StarvationStatus(published.starvation_status or StarvationStatus.NON_STARVING), published.below_ms)
    )
    settings = shares.inputs.starvation_settings[account.name]
    return next_state(previous, shares.is_below(account.name), snapshot.now_ms, settings, queued)


def build_publication(
    snapshot: PoolSnapshot, tree: AccountTree, shares: FairShares | None, states: Mapping[str, StarvationState]
) -> Publication | None:
    """Return the difference from the published statuses; None if there is none. `shares` is None in other disciplines."""
    check = OverLimitCheck(snapshot, tree)
    current = {name: _current_status(check, shares, states, account) for name, account in snapshot.accounts.items()}
    updates = tuple(
        update for name, account in snapshot.accounts.items() if (update := _account_update(account, current[name]))
    )
    is_watched = any(status.over_ms is not None or status.below_ms is not None for status in current.values())
    return (
        Publication(updates, is_watched)
        if updates or is_watched != snapshot.is_watched or snapshot.has_void_starvation
        else None
    )


def _current_status(
    check: OverLimitCheck, shares: FairShares | None, states: Mapping[str, StarvationState], account: AccountSnapshot
) -> PublishedStatus:
    over_ms = check.over_since(account)
    state = states.get(account.name, StarvationState())
    fair_shares, demand_met = _published_shares(shares, account) if shares else ({}, frozenset())
    status = "" if state.status is StarvationStatus.NON_STARVING else str(state.status)
    return PublishedStatus(
        fair_shares=fair_shares, demand_met=demand_met, starvation_status=status, below_ms=state.below_ms, over_ms=over_ms
    )


def _published_shares(shares: FairShares, account: AccountSnapshot) -> tuple[dict[str, int], frozenset[str]]:
    account_shares = shares.account(account.name)
    if not account.name.startswith(POLICY) or not any(account_shares.demand):
        return {}, frozenset()
    keys, keys_met = shares.division.keys, satisfaction.demand_met(account_shares.fair, account_shares.demand, shares.scale)
    fair_shares = {key: units * SHARE_UNITS // shares.scale for key, units in zip(keys, account_shares.fair, strict=True)}
    return fair_shares, frozenset(key for key, is_met in zip(keys, keys_met, strict=True) if is_met)


def _texts(published: PublishedStatus) -> dict[str, str]:
    """Return the fields of a published status as texts."""
    texts = {f"fair_share:{key}": str(due) for key, due in published.fair_shares.items()}
    texts |= {f"demand_met:{key}": "1" for key in sorted(published.demand_met)}
    texts |= {"status": published.starvation_status} if published.starvation_status else {}
    return texts | dict(_times(published))


def _times(published: PublishedStatus) -> Iterator[tuple[str, str]]:
    if published.below_ms is not None:
        yield "below_ms", str(published.below_ms)
    if published.over_ms is not None:
        yield "over_ms", str(published.over_ms)


def _account_update(account: AccountSnapshot, current: PublishedStatus) -> AccountUpdate | None:
    if current == account.published:
        return None
    before, after = _texts(account.published), _texts(current)
    values = tuple((field, text) for field, text in after.items() if before.get(field) != text)
    return AccountUpdate(account.name, values, tuple(field for field in before if field not in after))
