"""What would happen if: asks and changes tried out on a copy of the workspace, by the very code that would do them.

First the copy is settled, so that what is due anyway is not taken for a consequence; then comes what is tried, and what the
workers would do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from app.domain.declaration import Declaration, DeclaredGroup, DeclaredPolicy
from app.domain.declaration_diff import DeclarationPlan
from app.domain.dry_run import ChangeOutcome, SubmitOutcome
from app.domain.explanations import PoolExplanation
from app.domain.ids import request_id
from app.domain.models import Event, Request
from app.domain.specs import GroupSpec, PolicySpec, PoolUpdate, RequestSpec
from app.domain.states import HOLDING_STATES, RequestState
from app.planner.preemption.preemptible import find_preemptible
from app.service.declarations import Declarations
from app.service.estimates import Estimator
from app.service.explain import Explainer
from app.service.pools import Pools
from app.service.reconcile import Reconciler
from app.service.requests import Requests
from app.service.validation import checked_id, checked_name
from app.store.ledger import Ledger, LedgerLimits
from app.store.plan_store import PlanStore
from app.store.queries import QueryStore
from app.store.queue_status import QueueStatusStore
from app.store.workspace_copy import WorkspaceCopier, WorkspaceCopy
from app.store.workspaces import WorkspaceRegistry

MAX_PASSES = 100
"""Looks until nothing moves any more; far more than anything takes."""
PAGE_SIZE = 1000
EVENTS_KEPT = 10**9
"""Events of a trial that are kept, be it as it may outside: what comes of it is told by them."""


@dataclass(slots=True)
class _Bench:
    """The services on a copy."""

    workspace: str
    ledger: Ledger
    planning: PlanStore
    requests: Requests
    pools: Pools
    declaring: Declarations
    explaining: Explainer

    @classmethod
    def on(cls, workspace: str, scratch: WorkspaceCopy, limits: LedgerLimits) -> _Bench:
        """All that is needed, at the copy's own time."""
        client, clock = scratch
        ledger, planning, registry = Ledger(client, clock, limits), PlanStore(client, clock, limits), WorkspaceRegistry(client)
        standings = QueueStatusStore(client, clock)
        return cls(
            workspace=workspace,
            ledger=ledger,
            planning=planning,
            requests=Requests(ledger, registry),
            pools=Pools(ledger, registry),
            declaring=Declarations(ledger, registry),
            explaining=Explainer(standings, planning, ledger, Estimator(planning, ledger, QueryStore(client), standings)),
        )

    def settle(self) -> None:
        """What workers would decide until nothing is left to be decided."""
        reconciling = Reconciler(self.planning, self.ledger)
        for _ in range(MAX_PASSES):
            before = self.ledger.get_last_event_id(self.workspace)
            if not reconciling.run(self.workspace) and self.ledger.get_last_event_id(self.workspace) == before:
                return

    def since(self, event: str) -> Iterator[Event]:
        """What has happened since."""
        while some := self.ledger.list_events(self.workspace, event, PAGE_SIZE):
            yield from some
            event = some[-1].id

    def exposed(self) -> frozenset[str]:
        """Who lies beyond its share."""
        snapshots = (self.planning.snapshot(self.workspace, pool, anyway=True) for pool in self.ledger.list_pools(self.workspace))
        return frozenset(one for seen in snapshots if seen for one in find_preemptible(seen))


class DryRun:
    """Tries things out."""

    def __init__(self, copying: WorkspaceCopier, limits: LedgerLimits) -> None:
        self._copying, self._limits = copying, replace(limits, events_kept=EVENTS_KEPT)

    def submit(self, workspace: str, wanted: RequestSpec) -> SubmitOutcome:
        """What a submit of this would come to."""
        with self._bench(workspace) as bench:
            before, own = bench.ledger.get_last_event_id(workspace), request_id()
            bench.ledger.submit(workspace, wanted, own_id=own)
            bench.settle()
            happened = list(bench.since(before))
            # Last, as it ends with the estimate: what is known is not lost to that.
            told = bench.explaining.explain(workspace, own)
            return _asked(told.request, happened, told.pools)

    def update_pool(self, workspace: str, name: str, change: PoolUpdate) -> ChangeOutcome:
        """What a change of a pool would come to."""
        return self._changed(workspace, lambda bench: bench.pools.update(workspace, name, change))

    def set_policy(self, workspace: str, pool: str, wanted: DeclaredPolicy) -> ChangeOutcome:
        """What a policy that is put would come to."""
        ask = PolicySpec.model_validate(wanted.model_dump(include=set(PolicySpec.model_fields), exclude_unset=True))
        named = wanted.component, ask, wanted.component_type
        return self._changed(workspace, lambda bench: bench.pools.set_policy(workspace, pool, *named))

    def set_group(self, workspace: str, pool: str, wanted: DeclaredGroup) -> ChangeOutcome:
        """What a group that is put would come to."""
        ask = GroupSpec.model_validate(wanted.model_dump(include=set(GroupSpec.model_fields), exclude_unset=True))
        return self._changed(workspace, lambda bench: bench.pools.set_group(workspace, pool, wanted.name, ask))

    def apply(self, workspace: str, wanted: Declaration, *, prune: bool = False) -> ChangeOutcome:
        """What applying a declaration would come to."""
        return self._changed(workspace, lambda bench: bench.declaring.apply(workspace, wanted, prune))

    def cancel(self, workspace: str, request: str) -> ChangeOutcome:
        """What would come of it if somebody left the queue."""
        return self._changed(workspace, lambda bench: bench.requests.cancel(workspace, request), checked_id(request))

    def drop(self, workspace: str, request: str) -> ChangeOutcome:
        """What would come of it if a request were ended."""
        return self._changed(workspace, lambda bench: bench.requests.drop(workspace, request), checked_id(request))

    def _changed(self, workspace: str, change: Callable[[_Bench], object], of: str = "") -> ChangeOutcome:
        with self._bench(workspace, of) as bench:
            before, exposed = bench.ledger.get_last_event_id(workspace), bench.exposed()
            made = change(bench)
            bench.settle()
            moves = _moves(bench.since(before))
            return ChangeOutcome(
                granted=_those(moves, lambda was, now: was == RequestState.QUEUED and now in HOLDING_STATES),
                preempted=_those(moves, lambda was, now: was == RequestState.ALLOCATED and now in _GONE),
                preemptible=tuple(sorted(bench.exposed() - exposed - moves.keys())),
                reprieved=_those(moves, lambda was, now: was == RequestState.PREEMPTING and now == RequestState.ALLOCATED),
                rejected=_those(moves, lambda was, now: now == RequestState.REJECTED),
                ended=_those(moves, lambda was, now: now in _OVER),
                plan=made if isinstance(made, DeclarationPlan) else None,
            )

    @contextmanager
    def _bench(self, workspace: str, also: str = "") -> Iterator[_Bench]:
        with self._copying.copy(checked_name(workspace), also) as scratch:
            bench = _Bench.on(workspace, scratch, self._limits)
            bench.settle()
            yield bench


_GONE = (RequestState.PREEMPTING, RequestState.PREEMPTED, RequestState.QUEUED)
_OVER = (RequestState.CANCELLED, RequestState.RELEASED, RequestState.EXPIRED)


def _asked(request: Request, events: list[Event], pools: tuple[PoolExplanation, ...]) -> SubmitOutcome:
    left = {event.request: event for event in events if event.by == request.id and event.request != request.id}
    if left:
        pool = request.pool or next(iter(left.values())).pool
        return SubmitOutcome("preempts", request, pool, tuple((id_, event.component) for id_, event in left.items()), pools)
    if request.status in HOLDING_STATES:
        return SubmitOutcome("allocated", request, request.pool, (), ())
    return SubmitOutcome("rejected" if request.status == RequestState.REJECTED else "queued", request, None, (), pools)


def _moves(events: Iterator[Event]) -> dict[str, tuple[RequestState | None, RequestState]]:
    """Request → where it was before, and where it is afterwards."""
    moves: dict[str, tuple[RequestState | None, RequestState]] = {}
    for event in events:
        was = moves[event.request][0] if event.request in moves else event.from_status
        moves[event.request] = was, event.to_status
    return {request: (was, now) for request, (was, now) in moves.items() if was != now}


def _those(moves: Mapping[str, tuple[RequestState | None, RequestState]], are_so: Callable[[RequestState | None, RequestState], bool]) -> tuple[str, ...]:
    return tuple(request for request, (was, now) in moves.items() if are_so(was, now))
