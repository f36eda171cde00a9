"""Why somebody waits, for people and programs: what the scripts that grant and the planner that preempts say to it.

Nothing is judged here. Where it stands and what it lacks is read by a script made of the very functions that grant; whom it may
take from is what the planner decides in the pool as it is just now, of which the reasons are kept. What is told of two moments
would not agree, so if anything happened or was changed in between, all is read again.
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
)
from app.domain.models import Request
from app.domain.names import component_id
from app.domain.queue_score import EXACT
from app.domain.snapshot import PoolSnapshot
from app.domain.states import RequestState as Status
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
"""Looks at a workspace in which something happens all the time; in the last, pools may be told of as they were a moment ago."""
NO_ESTIMATOR = "it is not worked out here"


class Explainer:
    """Tells why."""

    def __init__(
        self,
        standings: QueueStatusStore,
        planning: PlanStore,
        ledger: Ledger,
        foreseeing: Estimator | None = None,
        looking: DecisionCache | None = None,
    ) -> None:
        self._standings, self._foreseeing = standings, foreseeing
        self._looking = looking or DecisionCache(planning, ledger)

    def explain(self, workspace: str, request: str) -> Explanation:
        """Why a request is where it is, of one that waits for each pool in whose queue it stands."""
        checked_name(workspace)
        checked_id(request)
        found, pools = self._looked(workspace, request)
        if found.status is not Status.QUEUED:
            return Explanation(found, explain_text.describe_state(found))
        views = tuple(self._view(workspace, found, standing, sight) for standing, sight in pools)
        told = tuple(view for view in views if view is not None)
        return Explanation(found, explain_text.describe_waiting(found, told), told)

    def list_estimates(self, workspace: str, request: Request) -> dict[str, EstimateResult]:
        """When a request that was looked at may start in each pool in whose queue it stands: nothing else is worked out."""
        return {pool: self._foreseen(workspace, pool, request, position) for pool, position in request.position.items()}

    def _foreseen(self, workspace: str, pool: str, request: Request, position: int) -> EstimateResult:
        return self._foreseeing.get(workspace, pool, request.id, position) if self._foreseeing else EstimateResult(None, NO_ESTIMATOR)

    def _looked(self, workspace: str, request: str) -> tuple[Request, list[tuple[QueueStatus, PoolDecisions]]]:
        """The request, how it stands in each pool, and the pool, all of one moment if that can be had."""
        tries = 0
        while True:
            tries += 1
            found, standings = self._standings.list_statuses(workspace, request)
            pools = [(one, self._looking.get(workspace, one, anyhow=tries == MAX_READS)) for one in standings]
            if tries == MAX_READS or all(sight.matches(standing) for standing, sight in pools):
                return found, pools

    def _view(self, workspace: str, request: Request, standing: QueueStatus, sight: PoolDecisions) -> PoolExplanation | None:
        if sight.snapshot is None:
            return None
        told = self._foreseen(workspace, standing.pool, request, standing.position)
        holders = _holders(request, standing, sight.snapshot)
        return PoolExplanation(
            status=standing,
            keys=_keys(request, standing),
            holders=holders[:MAX_CANDIDATES],
            preemption=_preemption(standing, sight, sight.snapshot),
            would_start_if=explain_text.start_condition(standing),
            more_holders=max(0, len(holders) - MAX_CANDIDATES),
            estimate=told.estimate,
            no_estimate=told.why_not,
        )


def _keys(request: Request, standing: QueueStatus) -> dict[str, KeyView]:
    at = {(one.account, one.key): one for one in standing.usages}
    own = POLICY + component_id(request.component_type, request.component)
    keys = {}
    for key, needed in request.resources.items():
        pool, policy = at["pool", key], at[own, key]
        if pool.limit is not None:
            free = max(0, pool.limit - pool.used)
            keys[key] = KeyView(needed, free, min(free, pool.held_for_others), policy.limit, policy.reserved)
    return keys


def _holders(request: Request, standing: QueueStatus, seen: PoolSnapshot) -> tuple[PolicyHolding, ...]:
    """Who holds what it lacks, where that is what keeps it: of its policy, of the group, or of the pool; most first."""
    blocking, tree = standing.blocking, AccountTree(seen.accounts)
    account = blocking.account if blocking else "pool"
    short = {lack.key for lack in standing.shortfalls if lack.account == account}
    lacking = short or request.resources.keys() & tree.pool.limit.keys()
    found, ends = [], _next_ends(seen, lacking)
    for component, path in tree.paths.items():
        policy = tree.policy(component)
        used = {key: policy.used[key] for key in request.resources if policy.used.get(key) and key in tree.pool.limit}
        if account in path and not lacking.isdisjoint(used):
            in_share = {key: min(units, policy.reserved.get(key, 0)) for key, units in used.items()}
            borrowed = {key: units - in_share[key] for key, units in used.items()}
            found.append(PolicyHolding(component, used, in_share, borrowed, ends.get(component)))
    found.sort(key=lambda holder: (-sum(units for key, units in holder.used.items() if key in lacking), holder.component))
    return tuple(found)


def _next_ends(seen: PoolSnapshot, keys: Set[str]) -> dict[str, int]:
    """When the next allocation of each component ends that holds any of these keys and has promised to."""
    ends: dict[str, int] = {}
    for one in seen.allocations:
        if one.walltime_s is not None and not keys.isdisjoint(one.amounts):
            end = one.granted_ms + one.walltime_s * 1000
            if end > seen.now_ms:
                ends[one.component] = min(end, ends.get(one.component, EXACT))
    return ends


def _preemption(standing: QueueStatus, sight: PoolDecisions, seen: PoolSnapshot) -> PreemptionView:
    leaving = tuple(one.id for one in seen.allocations if one.leaving_for == standing.waiter.id)
    if standing.state is QueueState.ELSEWHERE:
        return PreemptionView(False, "elsewhere", explain_text.describe_elsewhere(standing))
    asked = sight.decide(standing)
    decision = asked.decision
    if standing.state is QueueState.OWNER and (decision is None or decision.reason is DecisionReason.NO_SHORTAGE):
        return PreemptionView(True, "leaving", explain_text.describe_victims(len(leaving)), leaving=leaving)
    if decision is None:
        return PreemptionView(False, "not_asked", "it was not its turn to ask")
    return PreemptionView(decision.list_verdicts is not None, decision.reason, decision.sentence, asked.candidates, asked.more, leaving)
