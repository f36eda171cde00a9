"""Explanations of waiting requests, for people and programs, by the rules that grant and preempt.

This module has no rules of its own. A script that uses the functions of the grant loop reads the queue position and the
shortfalls. The planner decides about victims in a snapshot of the pool, and keeps its reasons. Both answers have to be of one
moment: after an event or a change in between, both are read again.
"""

from __future__ import annotations

from collections.abc import Set

from app.domain.explanations import (
    Explanation,
    KeyView,
    PolicyHolding,
    PoolExplanation,
    PreemptionView,
    QueueState,
    QueueStatus,
    ShortReason,
    WaitSummary,
)
from app.domain.models import Request
from app.domain.names import component_id
from app.domain.queue_score import MAX_AMOUNT
from app.domain.snapshot import PoolSnapshot
from app.domain.states import RequestState as RequestState
from app.planner.account_tree import POLICY, AccountTree
from app.planner.decisions import DecisionReason
from app.service import explain_text
from app.service.decision_cache import MAX_CANDIDATES, DecisionCache, PoolDecisions
from app.service.estimates import EstimateResult, Estimator
from app.service.validation import checked_id, checked_name
from app.store.ledger import Ledger
from app.store.plan_store import PlanStore
from app.store.queue_status import QueueStatusStore

MAX_READS = 3
"""The most reads of a workspace that changes all the time. The last read accepts a slightly older snapshot."""
NO_ESTIMATOR = "it is not computed here"


class Explainer:
    """The explanations of every workspace."""

    def __init__(
        self,
        queue_status: QueueStatusStore,
        plan_store: PlanStore,
        ledger: Ledger,
        estimator: Estimator | None = None,
        decision_cache: DecisionCache | None = None,
    ) -> None:
        self._queue_status, self._estimator = queue_status, estimator
        self._decision_cache = decision_cache or DecisionCache(plan_store, ledger)

    def explain(self, workspace: str, request: str) -> Explanation:
        """Return the explanation of a request; if it waits, for each pool in whose queue it is."""
        checked_name(workspace)
        checked_id(request)
        record, pools = self._read_consistently(workspace, request)
        if record.status is not RequestState.QUEUED:
            return Explanation(record, explain_text.describe_state(record))
        all_views = tuple(self._explain_pool(workspace, record, status, decisions) for status, decisions in pools)
        pool_views = tuple(view for view in all_views if view is not None)
        return Explanation(record, explain_text.describe_waiting(record, pool_views), pool_views)

    def summarize(self, workspace: str, request: str) -> WaitSummary:
        """Return a request and the reasons why it waits. This needs one script call, and not the planner."""
        return WaitSummary(*self._queue_status.list_statuses(checked_name(workspace), checked_id(request)))

    def list_estimates(self, workspace: str, request: Request) -> dict[str, EstimateResult]:
        """Return pool → estimated start of a request, for each pool in whose queue it is."""
        return {pool: self._estimate(workspace, pool, request, position) for pool, position in request.position.items()}

    def list_wait_reasons(self, workspace: str, request: str, *, with_ids: bool) -> dict[str, ShortReason]:
        """Return pool → reason why a request waits there. `with_ids` names other requests by id."""
        _, statuses = self._queue_status.list_statuses(checked_name(workspace), checked_id(request))
        return {
            status.pool: ShortReason(status.wait_reason, explain_text.describe_briefly(status, with_ids=with_ids))
            for status in statuses
        }

    def _estimate(self, workspace: str, pool: str, request: Request, position: int) -> EstimateResult:
        return (
            self._estimator.get(workspace, pool, request.id, position)
            if self._estimator
            else EstimateResult(None, NO_ESTIMATOR)
        )

    def _read_consistently(self, workspace: str, request: str) -> tuple[Request, list[tuple[QueueStatus, PoolDecisions]]]:
        """Return the request, its status in each pool, and the decisions there, all of one moment if possible."""
        reads = 0
        while True:
            reads += 1
            record, queue_status = self._queue_status.list_statuses(workspace, request)
            pools = [
                (status, self._decision_cache.get(workspace, status, allow_stale=reads == MAX_READS)) for status in queue_status
            ]
            if reads == MAX_READS or all(decisions.matches(status) for status, decisions in pools):
                return record, pools

    def _explain_pool(
        self, workspace: str, request: Request, status: QueueStatus, decisions: PoolDecisions
    ) -> PoolExplanation | None:
        if decisions.snapshot is None:
            return None
        result = self._estimate(workspace, status.pool, request, status.position)
        holdings = _list_holdings(request, status, decisions.snapshot)
        return PoolExplanation(
            status=status,
            keys=_describe_keys(request, status),
            holders=holdings[:MAX_CANDIDATES],
            preemption=_describe_preemption(status, decisions, decisions.snapshot),
            would_start_if=explain_text.start_condition(status),
            more_holders=max(0, len(holdings) - MAX_CANDIDATES),
            estimate=result.estimate,
            no_estimate=result.why_not,
        )


def _describe_keys(request: Request, status: QueueStatus) -> dict[str, KeyView]:
    usages = {(usage.account, usage.key): usage for usage in status.usages}
    own_account = POLICY + component_id(request.component_type, request.component)
    keys = {}
    for key, needed in request.resources.items():
        pool, policy = usages["pool", key], usages[own_account, key]
        if pool.limit is not None:
            free = max(0, pool.limit - pool.used)
            keys[key] = KeyView(needed, free, min(free, pool.held_for_others), policy.limit, policy.reserved)
    return keys


def _list_holdings(request: Request, status: QueueStatus, snapshot: PoolSnapshot) -> tuple[PolicyHolding, ...]:
    """Return the policies that hold units of the missing keys in the account that blocks the request, the largest first."""
    blocking, tree = status.blocking, AccountTree(snapshot.accounts)
    account = blocking.account if blocking else "pool"
    short_keys = {shortfall.key for shortfall in status.shortfalls if shortfall.account == account}
    missing_keys = short_keys or request.resources.keys() & tree.pool.limit.keys()
    holdings, ends = [], _next_ends(snapshot, missing_keys)
    for component, path in tree.paths.items():
        policy = tree.policy(component)
        used = {key: policy.used[key] for key in request.resources if policy.used.get(key) and key in tree.pool.limit}
        if account in path and not missing_keys.isdisjoint(used):
            in_share = {key: min(units, policy.reserved.get(key, 0)) for key, units in used.items()}
            borrowed = {key: units - in_share[key] for key, units in used.items()}
            holdings.append(PolicyHolding(component, used, in_share, borrowed, ends.get(component)))
    holdings.sort(
        key=lambda holding: (-sum(units for key, units in holding.used.items() if key in missing_keys), holding.component)
    )
    return tuple(holdings)


def _next_ends(snapshot: PoolSnapshot, keys: Set[str]) -> dict[str, int]:
    """Return component → earliest end of its allocations that hold one of the keys and have a walltime."""
    ends: dict[str, int] = {}
    for allocation in snapshot.allocations:
        if allocation.walltime_s is not None and not keys.isdisjoint(allocation.amounts):
            end = allocation.granted_ms + allocation.walltime_s * 1000
            if end > snapshot.now_ms:
                ends[allocation.component] = min(end, ends.get(allocation.component, MAX_AMOUNT))
    return ends


def _describe_preemption(status: QueueStatus, decisions: PoolDecisions, snapshot: PoolSnapshot) -> PreemptionView:
    leaving = tuple(allocation.id for allocation in snapshot.allocations if allocation.leaving_for == status.waiter.id)
    if status.state is QueueState.ELSEWHERE:
        return PreemptionView(False, "elsewhere", explain_text.describe_elsewhere(status))
    outcome = decisions.decide(status)
    decision = outcome.decision
    if status.state is QueueState.OWNER and (decision is None or decision.reason is DecisionReason.NO_SHORTAGE):
        return PreemptionView(True, "leaving", explain_text.describe_victims(len(leaving)), leaving=leaving)
    if decision is None:
        return PreemptionView(False, "not_asked", "the search for victims did not reach it")
    return PreemptionView(
        decision.list_verdicts is not None, decision.reason, decision.sentence, outcome.candidates, outcome.more, leaving
    )
