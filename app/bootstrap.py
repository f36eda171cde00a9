"""The one place where concrete things are chosen: settings, a Redis and a clock become services."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from app import celery_brokers
from app.domain.clock import Clock
from app.service.audit import Audit
from app.service.cleanup import Housekeeping
from app.service.dashboard_queries import Glances
from app.service.declarations import Declaring
from app.service.dry_run import Trying
from app.service.estimates import Foreseeing
from app.service.explain import Explaining
from app.service.long_poll import House, Waiting
from app.service.measuring import Measures
from app.service.periodic_jobs import Rounds, Turns
from app.service.pool_shares import Sharing
from app.service.pools import Pools
from app.service.queries import Listing
from app.service.reconcile import Reconciling
from app.service.requests import Requests
from app.service.tasks import Tasks
from app.service.tokens import Tokens
from app.service.usage_history import Histories
from app.settings import Settings
from app.store.audit import Auditor
from app.store.change_notifications import Wakeups
from app.store.connection import check, connect
from app.store.embedded_redis import EmbeddedRedis, FolderInUse, require_ledger
from app.store.ledger import Ledger, Limits
from app.store.metrics import Measuring
from app.store.nudges import Nudges
from app.store.plan_store import Planning
from app.store.queries import Lists
from app.store.queue_status import Standings
from app.store.scripts import Client
from app.store.task_outbox import TaskStore
from app.store.tokens import TokenStore
from app.store.usage_samples import Samples
from app.store.workspace_copy import Copying, OnDemand, Servers
from app.store.workspaces import Registry


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that can be asked of Poolkeeper in one process."""

    requests: Requests
    tasks: Tasks
    pools: Pools
    lists: Listing
    housekeeping: Housekeeping
    audit: Audit
    rounds: Rounds
    tokens: Tokens
    waiting: Waiting
    declaring: Declaring
    sharing: Sharing
    explaining: Explaining
    foreseeing: Foreseeing
    trying: Trying
    glances: Glances
    history: Histories
    measures: Measures
    registry: Registry


def services(client: Client, settings: Settings, clock: Clock | None = None, scratch: Servers | None = None) -> Services:
    """The services on a Redis; things are tried out where `scratch` says, else on a server of this process's own."""
    limits = _limits(settings)
    ledger, registry = Ledger(client, clock, limits), Registry(client)
    housekeeping, audit = Housekeeping(ledger, registry), Audit(ledger, Auditor(client, clock, settings.chunk))
    reconciling = Reconciling(Planning(client, clock, limits), ledger)
    turns = Turns(Nudges(client, clock), reconciling)
    requests = Requests(ledger, registry)
    house = House(polls=settings.api_threads * 3 // 4, streams=settings.api_threads // 8)
    standings, lists = Standings(client, clock), Lists(client)
    history = Histories(Samples(client, settings.history_interval_s, settings.history_kept, clock), ledger)
    foreseeing = Foreseeing(Planning(client, clock, limits), ledger, lists, standings)
    return Services(
        requests=requests,
        tasks=Tasks(task_store(client, settings, clock), registry, celery_brokers.read(settings)),
        pools=Pools(ledger, registry),
        lists=Listing(ledger, lists),
        housekeeping=housekeeping,
        audit=audit,
        rounds=Rounds(ledger, registry, housekeeping, audit, history, turns),
        tokens=Tokens(TokenStore(client, clock), settings.rate_per_s),
        waiting=Waiting(requests, Wakeups(client), house),
        declaring=Declaring(ledger, registry),
        sharing=Sharing(Planning(client, clock, limits), ledger),
        explaining=Explaining(standings, Planning(client, clock, limits), ledger, foreseeing),
        foreseeing=foreseeing,
        trying=Trying(Copying(client, scratch or OnDemand(), clock), limits),
        glances=Glances(standings, ledger, history),
        history=history,
        measures=Measures(Measuring(client, clock), ledger),
        registry=registry,
    )


def task_store(client: Client, settings: Settings, clock: Clock | None = None) -> TaskStore:
    """What is kept of tasks, for whoever sends them."""
    return TaskStore(client, clock, _limits(settings))


def _limits(settings: Settings) -> Limits:
    return Limits(
        chunk=settings.chunk,
        events_kept=settings.events_kept,
        retention_s=settings.retention_s,
        idempotency_ttl_s=settings.idempotency_ttl_s,
    )


@dataclass(frozen=True, slots=True)
class Running:
    """The services, the Redis they are on, and the server if it is our own."""

    services: Services
    url: str
    server: EmbeddedRedis | None

    @property
    def alive(self) -> bool:
        """False once our own server is gone; a Redis of others may come back."""
        return self.server is None or self.server.alive


@contextmanager
def running(settings: Settings, *, serving: bool = False, existing: bool = False) -> Iterator[Running]:
    """The services on the Redis that is set, or on an embedded one that lives as long as the context. It has answered.

    With `serving` the embedded one is offered to all who come without it: they are on it while this one runs, and one that
    serves already is an error. With `existing` a data folder without a ledger is one, too: it is hardly the one that is meant.
    """
    with ExitStack() as stack:
        url, server = settings.redis_url, None
        if not url:
            if existing:
                require_ledger(settings.data_dir)
            url, server = _embedded(settings, stack, serving=serving)
        client = connect(url, settings.redis_timeout_s)
        check(client, url)
        stack.callback(client.close)
        yield Running(services(client, settings), url, server)


def _embedded(settings: Settings, stack: ExitStack, *, serving: bool) -> tuple[str, EmbeddedRedis | None]:
    """Where an embedded server answers: one of our own, or that of the service which has the data folder."""
    own = EmbeddedRedis(settings.data_dir, appendfsync=settings.appendfsync, offered=serving)
    try:
        stack.enter_context(own)
    except FolderInUse as taken:
        if serving or not taken.url:
            raise
        return taken.url, None
    return own.url, own
