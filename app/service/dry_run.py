"""Dry runs: apply a request or a change to a copy of the workspace, with the same commands and the same planner.

1. Copy the workspace, and reconcile the copy until it is stable, so that only consequences of the change are reported.
2. Apply the request or the change.
3. Reconcile again, and report what happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from app.domain.declaration import Declaration, GroupDeclaration, PolicyDeclaration
from app.domain.declaration_diff import DeclarationPlan
from app.domain.dry_run import ChangeOutcome, SubmitOutcome
from app.domain.explanations import PoolExplanation
from app.domain.ids import request_id
from app.domain.ledger_limits import LedgerLimits
from app.domain.models import Event, Request
from app.domain.over_limit import OverLimitUse, new_over_limit
from app.domain.specs import GroupSpec, PolicySpec, PoolUpdate, RequestSpec
from app.domain.states import HOLDING_STATES, RequestState
from app.domain.workspace_limits import LimitedToken
from app.planner.preemption.preemptible import find_preemptible
from app.service.declarations import Declarations
from app.service.estimates import Estimator
from app.service.explain import Explainer
from app.service.over_limit import OverLimitReader
from app.service.pools import Pools
from app.service.reconcile import Reconciler
from app.service.requests import Requests
from app.service.validation import checked_id, checked_name
from app.store.ledger import Ledger
from app.store.plan_store import PlanStore
from app.store.queries import QueryStore
from app.store.queue_status import QueueStatusStore
from app.store.workspace_copy import WorkspaceCopier, WorkspaceCopy
from app.store.workspaces import WorkspaceRegistry

MAX_PASSES = 100
"""The most reconcile passes until the copy is stable: far more than any workspace needs."""
PAGE_SIZE = 1000
EVENTS_KEPT = 10**9
"""The events that the copy keeps: the outcome is computed from them, so the setting `events_kept` of the service does not
apply."""


@dataclass(slots=True)
class _CopyServices:
    """The services on a copy."""

    workspace: str
    ledger: Ledger
    plan_store: PlanStore
    requests: Requests
    pools: Pools
    declarations: Declarations
    over_limit: OverLimitReader
    explainer: Explainer

    @classmethod
    def on(cls, workspace: str, workspace_copy: WorkspaceCopy, limits: LedgerLimits) -> _CopyServices:
        """Return the services on a copy, with the clock of the copy."""
        client, clock = workspace_copy
        ledger, plan_store, registry = (
            Ledger(client, clock, limits),
            PlanStore(client, clock, limits),
            WorkspaceRegistry(client),
        )
        queue_status, query_store = QueueStatusStore(client, clock), QueryStore(client)
        over_limit = OverLimitReader(plan_store, ledger, query_store)
        return cls(
            workspace=workspace,
            ledger=ledger,
            plan_store=plan_store,
            requests=Requests(ledger, registry),
            pools=Pools(ledger, registry),
            declarations=Declarations(ledger, registry, over_limit),
            over_limit=over_limit,
            explainer=Explainer(queue_status, plan_store, ledger, Estimator(plan_store, ledger, query_store, queue_status)),
        )

    def settle(self) -> None:
        """Reconcile the copy until a pass changes nothing."""
        reconciler = Reconciler(self.plan_store, self.ledger)
        for _ in range(MAX_PASSES):
            before = self.ledger.get_last_event_id(self.workspace)
            if not reconciler.run(self.workspace) and self.ledger.get_last_event_id(self.workspace) == before:
                return

    def list_events_since(self, event: str) -> Iterator[Event]:
        """Yield the events after an event."""
        while events := self.ledger.read_events(self.workspace, event, PAGE_SIZE):
            yield from events
            event = events[-1].id

    def find_preemptible(self) -> frozenset[str]:
        """Return the allocations that other policies may preempt, because they lie beyond their policy's share."""
        snapshots = (
            self.plan_store.read_snapshot(self.workspace, pool, even_if_idle=True)
            for pool in self.ledger.list_pools(self.workspace)
        )
        return frozenset(allocation for snapshot in snapshots if snapshot for allocation in find_preemptible(snapshot))

    def list_over_limit(self, pools: Sequence[str]) -> list[OverLimitUse]:
        """Return the use of these pools beyond their limits."""
        return [use for pool in pools for use in self.over_limit.read(self.workspace, pool)]


class DryRun:
    """The dry runs of every workspace."""

    def __init__(self, copier: WorkspaceCopier, limits: LedgerLimits) -> None:
        self._copier, self._limits = copier, replace(limits, events_kept=EVENTS_KEPT)

    def submit(self, workspace: str, spec: RequestSpec, token: LimitedToken | None = None) -> SubmitOutcome:
        """Return the outcome of a submit. Raise LimitReached beyond a limit of the workspace, the component or the token."""
        with self._copy_services(workspace) as copy:
            before, own_request = copy.ledger.get_last_event_id(workspace), request_id()
            copy.ledger.submit(workspace, spec, own_id=own_request, token=token)
            copy.settle()
            events = list(copy.list_events_since(before))
            # The explanation comes last: it ends with the estimate, which may take too long.
            explanation = copy.explainer.explain(workspace, own_request)
            return _submit_outcome(explanation.request, events, explanation.pools)

    def update_pool(self, workspace: str, name: str, change: PoolUpdate) -> ChangeOutcome:
        """Return the outcome of a change of a pool."""
        return self._try_change(workspace, lambda copy: copy.pools.update(workspace, name, change), pools=[name])

    def set_policy(self, workspace: str, pool: str, declared_policy: PolicyDeclaration) -> ChangeOutcome:
        """Return the outcome of a new or changed policy."""
        spec = PolicySpec.model_validate(declared_policy.model_dump(include=set(PolicySpec.model_fields), exclude_unset=True))
        policy_arguments = declared_policy.component, spec, declared_policy.component_type
        return self._try_change(workspace, lambda copy: copy.pools.set_policy(workspace, pool, *policy_arguments), pools=[pool])

    def set_group(self, workspace: str, pool: str, declared_group: GroupDeclaration) -> ChangeOutcome:
        """Return the outcome of a new or changed group."""
        spec = GroupSpec.model_validate(declared_group.model_dump(include=set(GroupSpec.model_fields), exclude_unset=True))
        return self._try_change(
            workspace, lambda copy: copy.pools.set_group(workspace, pool, declared_group.name, spec), pools=[pool]
        )

    def apply(self, workspace: str, declaration: Declaration, *, prune: bool = False) -> ChangeOutcome:
        """Return the outcome of a declaration."""
        pools = [pool.name for pool in declaration.pools]
        return self._try_change(workspace, lambda copy: copy.declarations.apply(workspace, declaration, prune), pools=pools)

    def cancel(self, workspace: str, request: str) -> ChangeOutcome:
        """Return the outcome if a queued request were cancelled."""
        return self._try_change(workspace, lambda copy: copy.requests.cancel(workspace, request), checked_id(request))

    def drop(self, workspace: str, request: str) -> ChangeOutcome:
        """Return the outcome if a request were dropped."""
        return self._try_change(workspace, lambda copy: copy.requests.drop(workspace, request), checked_id(request))

    def _try_change(
        self,
        workspace: str,
        change: Callable[[_CopyServices], object],
        own_request: str = "",
        pools: Sequence[str] = (),
    ) -> ChangeOutcome:
        """Return the outcome of a change on a copy. `pools` are the pools whose limits it may lower."""
        with self._copy_services(workspace, own_request) as copy:
            before, preemptible_before = copy.ledger.get_last_event_id(workspace), copy.find_preemptible()
            over_before = copy.list_over_limit(pools)
            result = change(copy)
            over_limit = new_over_limit(over_before, copy.list_over_limit(pools))
            copy.settle()
            moves = _moves(copy.list_events_since(before))
            return ChangeOutcome(
                granted=_select(moves, lambda before, after: before == RequestState.QUEUED and after in HOLDING_STATES),
                preempted=_select(
                    moves, lambda before, after: before == RequestState.ALLOCATED and after in _NO_LONGER_ALLOCATED
                ),
                preemptible=tuple(sorted(copy.find_preemptible() - preemptible_before - moves.keys())),
                reprieved=_select(
                    moves, lambda before, after: before == RequestState.PREEMPTING and after == RequestState.ALLOCATED
                ),
                rejected=_select(moves, lambda before, after: after == RequestState.REJECTED),
                ended=_select(moves, lambda before, after: after in _ENDED),
                over_limit=over_limit,
                plan=result if isinstance(result, DeclarationPlan) else None,
            )

    @contextmanager
    def _copy_services(self, workspace: str, also: str = "") -> Iterator[_CopyServices]:
        with self._copier.copy(checked_name(workspace), also) as workspace_copy:
            copy = _CopyServices.on(workspace, workspace_copy, self._limits)
            copy.settle()
            yield copy


_NO_LONGER_ALLOCATED = (RequestState.PREEMPTING, RequestState.PREEMPTED, RequestState.QUEUED)
_ENDED = (RequestState.CANCELLED, RequestState.RELEASED, RequestState.EXPIRED)


def _submit_outcome(request: Request, events: list[Event], pools: tuple[PoolExplanation, ...]) -> SubmitOutcome:
    victims = {event.request: event for event in events if event.by == request.id and event.request != request.id}
    if victims:
        pool = request.pool or next(iter(victims.values())).pool
        return SubmitOutcome("preempts", request, pool, tuple((id_, event.component) for id_, event in victims.items()), pools)
    if request.status in HOLDING_STATES:
        return SubmitOutcome("allocated", request, request.pool, (), ())
    return SubmitOutcome("rejected" if request.status == RequestState.REJECTED else "queued", request, None, (), pools)


def _moves(events: Iterator[Event]) -> dict[str, tuple[RequestState | None, RequestState]]:
    """Return request → its state before and after the events, for each that has another state."""
    moves: dict[str, tuple[RequestState | None, RequestState]] = {}
    for event in events:
        before = moves[event.request][0] if event.request in moves else event.from_status
        moves[event.request] = before, event.to_status
    return {request: (before, now) for request, (before, now) in moves.items() if before != now}


def _select(
    moves: Mapping[str, tuple[RequestState | None, RequestState]],
    condition: Callable[[RequestState | None, RequestState], bool],
) -> tuple[str, ...]:
    return tuple(request for request, (before, after) in moves.items() if condition(before, after))
