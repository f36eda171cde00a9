"""What would happen if: asks and changes tried out on a copy of the workspace, by the very code that would do them.

First the copy is settled, so that what is due anyway is not taken for a consequence; then comes what is tried, and what the
workers would do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from app.domain.declaration import Declaration, DeclaredGroup, DeclaredPolicy
from app.domain.declaration_diff import Plan
from app.domain.dry_run import Asked, Changed
from app.domain.explanations import PoolView
from app.domain.ids import request_id
from app.domain.models import Event, Request
from app.domain.specs import GroupAsk, PolicyAsk, PoolChange, RequestAsk
from app.domain.states import LIVE, State
from app.planner.preemption.preemptible import exposed
from app.service.declarations import Declaring
from app.service.estimates import Foreseeing
from app.service.explain import Explaining
from app.service.pools import Pools
from app.service.reconcile import Reconciling
from app.service.requests import Requests
from app.service.validation import checked_id, checked_name
from app.store.ledger import Ledger, Limits
from app.store.plan_store import Planning
from app.store.queries import Lists
from app.store.queue_status import Standings
from app.store.workspace_copy import Copying, Scratch
from app.store.workspaces import Registry

ROUNDS = 100
"""Looks until nothing moves any more; far more than anything takes."""
EVENTS = 1000
KEPT = 10**9
"""Events of a trial that are kept, be it as it may outside: what comes of it is told by them."""


@dataclass(slots=True)
class _Bench:
    """The services on a copy."""

    workspace: str
    ledger: Ledger
    planning: Planning
    requests: Requests
    pools: Pools
    declaring: Declaring
    explaining: Explaining

    @classmethod
    def on(cls, workspace: str, scratch: Scratch, limits: Limits) -> _Bench:
        """All that is needed, at the copy's own time."""
        client, clock = scratch
        ledger, planning, registry = Ledger(client, clock, limits), Planning(client, clock, limits), Registry(client)
        standings = Standings(client, clock)
        return cls(
            workspace=workspace,
            ledger=ledger,
            planning=planning,
            requests=Requests(ledger, registry),
            pools=Pools(ledger, registry),
            declaring=Declaring(ledger, registry),
            explaining=Explaining(standings, planning, ledger, Foreseeing(planning, ledger, Lists(client), standings)),
        )

    def settle(self) -> None:
        """What workers would decide until nothing is left to be decided."""
        reconciling = Reconciling(self.planning, self.ledger)
        for _ in range(ROUNDS):
            before = self.ledger.last_event(self.workspace)
            if not reconciling.run(self.workspace) and self.ledger.last_event(self.workspace) == before:
                return

    def since(self, event: str) -> Iterator[Event]:
        """What has happened since."""
        while some := self.ledger.events(self.workspace, event, EVENTS):
            yield from some
            event = some[-1].id

    def exposed(self) -> frozenset[str]:
        """Who lies beyond its share."""
        snapshots = (self.planning.snapshot(self.workspace, pool, anyway=True) for pool in self.ledger.pools(self.workspace))
        return frozenset(one for seen in snapshots if seen for one in exposed(seen))


class Trying:
    """Tries things out."""

    def __init__(self, copying: Copying, limits: Limits) -> None:
        self._copying, self._limits = copying, replace(limits, events_kept=KEPT)

    def ask(self, workspace: str, wanted: RequestAsk) -> Asked:
        """What a submit of this would come to."""
        with self._bench(workspace) as bench:
            before, own = bench.ledger.last_event(workspace), request_id()
            bench.ledger.submit(workspace, wanted, own_id=own)
            bench.settle()
            happened = list(bench.since(before))
            # Last, as it ends with the estimate: what is known is not lost to that.
            told = bench.explaining.explain(workspace, own)
            return _asked(told.request, happened, told.pools)

    def pool(self, workspace: str, name: str, change: PoolChange) -> Changed:
        """What a change of a pool would come to."""
        return self._changed(workspace, lambda bench: bench.pools.update(workspace, name, change))

    def policy(self, workspace: str, pool: str, wanted: DeclaredPolicy) -> Changed:
        """What a policy that is put would come to."""
        ask = PolicyAsk.model_validate(wanted.model_dump(include=set(PolicyAsk.model_fields), exclude_unset=True))
        named = wanted.component, ask, wanted.component_type
        return self._changed(workspace, lambda bench: bench.pools.set_policy(workspace, pool, *named))

    def group(self, workspace: str, pool: str, wanted: DeclaredGroup) -> Changed:
        """What a group that is put would come to."""
        ask = GroupAsk.model_validate(wanted.model_dump(include=set(GroupAsk.model_fields), exclude_unset=True))
        return self._changed(workspace, lambda bench: bench.pools.set_group(workspace, pool, wanted.name, ask))

    def declaration(self, workspace: str, wanted: Declaration, *, prune: bool = False) -> Changed:
        """What applying a declaration would come to."""
        return self._changed(workspace, lambda bench: bench.declaring.apply(workspace, wanted, prune))

    def cancel(self, workspace: str, request: str) -> Changed:
        """What would come of it if somebody left the queue."""
        return self._changed(workspace, lambda bench: bench.requests.cancel(workspace, request), checked_id(request))

    def drop(self, workspace: str, request: str) -> Changed:
        """What would come of it if a request were ended."""
        return self._changed(workspace, lambda bench: bench.requests.drop(workspace, request), checked_id(request))

    def _changed(self, workspace: str, change: Callable[[_Bench], object], of: str = "") -> Changed:
        with self._bench(workspace, of) as bench:
            before, exposed = bench.ledger.last_event(workspace), bench.exposed()
            made = change(bench)
            bench.settle()
            moves = _moves(bench.since(before))
            return Changed(
                granted=_those(moves, lambda was, now: was == State.QUEUED and now in LIVE),
                preempted=_those(moves, lambda was, now: was == State.ALLOCATED and now in _GONE),
                preemptible=tuple(sorted(bench.exposed() - exposed - moves.keys())),
                reprieved=_those(moves, lambda was, now: was == State.PREEMPTING and now == State.ALLOCATED),
                rejected=_those(moves, lambda was, now: now == State.REJECTED),
                ended=_those(moves, lambda was, now: now in _OVER),
                plan=made if isinstance(made, Plan) else None,
            )

    @contextmanager
    def _bench(self, workspace: str, also: str = "") -> Iterator[_Bench]:
        with self._copying.copy(checked_name(workspace), also) as scratch:
            bench = _Bench.on(workspace, scratch, self._limits)
            bench.settle()
            yield bench


_GONE = (State.PREEMPTING, State.PREEMPTED, State.QUEUED)
_OVER = (State.CANCELLED, State.RELEASED, State.EXPIRED)


def _asked(request: Request, events: list[Event], pools: tuple[PoolView, ...]) -> Asked:
    left = {event.request: event for event in events if event.by == request.id and event.request != request.id}
    if left:
        pool = request.pool or next(iter(left.values())).pool
        return Asked("preempts", request, pool, tuple((id_, event.component) for id_, event in left.items()), pools)
    if request.status in LIVE:
        return Asked("allocated", request, request.pool, (), ())
    return Asked("rejected" if request.status == State.REJECTED else "queued", request, None, (), pools)


def _moves(events: Iterator[Event]) -> dict[str, tuple[State | None, State]]:
    """Request → where it was before, and where it is afterwards."""
    moves: dict[str, tuple[State | None, State]] = {}
    for event in events:
        was = moves[event.request][0] if event.request in moves else event.came_from
        moves[event.request] = was, event.to
    return {request: (was, now) for request, (was, now) in moves.items() if was != now}


def _those(moves: Mapping[str, tuple[State | None, State]], are_so: Callable[[State | None, State], bool]) -> tuple[str, ...]:
    return tuple(request for request, (was, now) in moves.items() if are_so(was, now))
