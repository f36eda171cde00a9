"""The composition root: it makes the services from settings, a Redis and a clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from app import celery_brokers
from app.domain.clock import Clock
from app.domain.ledger_limits import LedgerLimits
from app.service.audit import Audit
from app.service.availability import Availability
from app.service.cleanup import Cleanup
from app.service.dashboard_queries import DashboardQueries
from app.service.declarations import Declarations
from app.service.dry_run import DryRun
from app.service.dry_run_shares import DryRunShares
from app.service.estimates import Estimator
from app.service.explain import Explainer
from app.service.long_poll import LongPolls
from app.service.over_limit import OverLimitReader
from app.service.periodic_jobs import PeriodicJobs
from app.service.pool_shares import PoolShares
from app.service.pools import Pools
from app.service.queries import MetricQueries, RequestQueries
from app.service.reconcile import Reconciler
from app.service.reconcile_lock import ReconcileLock
from app.service.requests import Requests
from app.service.tasks import Tasks
from app.service.tokens import Tokens
from app.service.usage_history import UsageHistories
from app.service.wait_slots import WaitSlots
from app.settings import Settings
from app.store.audit import AuditStore
from app.store.availability import AvailabilityStore
from app.store.change_notifications import ChangeNotifications
from app.store.connection import RedisClient, check_server, connect
from app.store.embedded_redis import EmbeddedRedis, FolderInUse, require_ledger
from app.store.ledger import Ledger
from app.store.metrics import MetricsStore
from app.store.nudges import Nudges
from app.store.plan_store import PlanStore
from app.store.queries import QueryStore
from app.store.queue_status import QueueStatusStore
from app.store.schema import check_schema
from app.store.task_outbox import TaskStore
from app.store.tokens import TokenStore
from app.store.usage_samples import UsageSampleStore
from app.store.work_resumer import BackgroundResumer, WorkResumer
from app.store.workspace_copy import RedisProvider, ThrowawayRedis, WorkspaceCopier
from app.store.workspaces import WorkspaceRegistry


@dataclass(frozen=True, slots=True)
class Services:
    """The services of one process."""

    requests: Requests
    tasks: Tasks
    pools: Pools
    queries: RequestQueries
    cleanup: Cleanup
    availability: Availability
    audit: Audit
    periodic_jobs: PeriodicJobs
    tokens: Tokens
    long_polls: LongPolls
    declarations: Declarations
    over_limit: OverLimitReader
    pool_shares: PoolShares
    explain: Explainer
    estimates: Estimator
    dry_run: DryRun
    dry_run_shares: DryRunShares
    dashboard_queries: DashboardQueries
    usage_history: UsageHistories
    metrics: MetricQueries
    workspaces: WorkspaceRegistry


def _monotonic(clock: Clock | None) -> Callable[[], float]:
    """Return the monotonic clock for a clock: that of the machine, or the manual clock."""
    if clock is None or clock.now_ms() is None:
        return time.monotonic
    return lambda: (clock.now_ms() or 0) / 1000


def make_services(
    client: RedisClient,
    settings: Settings,
    clock: Clock | None = None,
    redis_provider: RedisProvider | None = None,
    *,
    in_background: bool = False,
) -> Services:
    """Return the services on a Redis. Dry runs use a Redis of `redis_provider`, else a throwaway server of this process.

    With `in_background` a thread resumes unfinished work, so that no answer to a client waits for it."""
    limits = _limits(settings)
    resumer = _background_resumer(client, settings, clock) if in_background else None
    ledger = Ledger(client, clock, limits, resume_later=resumer.add if resumer else None)
    workspaces = WorkspaceRegistry(client)
    availability = Availability(AvailabilityStore(client, clock))
    cleanup = Cleanup(ledger, workspaces, availability, _monotonic(clock))
    audit = Audit(ledger, AuditStore(client, clock, settings.chunk))
    reconciler = Reconciler(PlanStore(client, clock, limits), ledger)
    reconcile_lock = ReconcileLock(Nudges(client, clock), reconciler)
    requests = Requests(ledger, workspaces)
    queue_status, query_store = QueueStatusStore(client, clock), QueryStore(client)
    usage_history = UsageHistories(UsageSampleStore(client, settings.history_interval_s, settings.history_kept, clock), ledger)
    estimator = Estimator(PlanStore(client, clock, limits), ledger, query_store, queue_status)
    over_limit = OverLimitReader(PlanStore(client, clock, limits), ledger, query_store)
    return Services(
        requests=requests,
        tasks=Tasks(
            TaskStore(client, clock, limits, resume_later=resumer.add if resumer else None),
            workspaces,
            celery_brokers.read_brokers(settings),
        ),
        pools=Pools(ledger, workspaces),
        queries=RequestQueries(ledger, query_store),
        cleanup=cleanup,
        availability=availability,
        audit=audit,
        periodic_jobs=PeriodicJobs(ledger, workspaces, cleanup, audit, usage_history, reconcile_lock),
        tokens=Tokens(TokenStore(client, clock), settings.rate_per_s),
        long_polls=LongPolls(requests, ChangeNotifications(client), _wait_slots(settings)),
        declarations=Declarations(ledger, workspaces, over_limit),
        over_limit=over_limit,
        pool_shares=PoolShares(PlanStore(client, clock, limits), ledger),
        explain=Explainer(queue_status, PlanStore(client, clock, limits), ledger, estimator),
        estimates=estimator,
        dry_run=DryRun(WorkspaceCopier(client, redis_provider or ThrowawayRedis(), clock), limits),
        dry_run_shares=DryRunShares(settings.token_share_percent),
        dashboard_queries=DashboardQueries(queue_status, ledger, usage_history),
        usage_history=usage_history,
        metrics=MetricQueries(MetricsStore(client, clock), ledger),
        workspaces=workspaces,
    )


def make_task_store(client: RedisClient, settings: Settings) -> TaskStore:
    """Return the task store for the outbox dispatcher: no task waits for unfinished work."""
    return TaskStore(client, limits=_limits(settings), resume_later=_background_resumer(client, settings).add)


def _background_resumer(client: RedisClient, settings: Settings, clock: Clock | None = None) -> BackgroundResumer:
    return BackgroundResumer(WorkResumer(Ledger(client, clock, _limits(settings))))


def _wait_slots(settings: Settings) -> WaitSlots:
    threads = settings.api_threads
    return WaitSlots(
        polls=threads * 3 // 4,
        streams=threads // 8,
        dashboards=max(1, min(8, threads // 8), threads // 16),
        bodies=max(4, threads // 20),
        share_percent=settings.token_share_percent,
    )


def _limits(settings: Settings) -> LedgerLimits:
    return LedgerLimits(
        chunk=settings.chunk,
        events_kept=settings.events_kept,
        retention_s=settings.retention_s,
        idempotency_ttl_s=settings.idempotency_ttl_s,
    )


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """The services, the URL of their Redis, and the server if it is the embedded one."""

    services: Services
    url: str
    server: EmbeddedRedis | None

    @property
    def alive(self) -> bool:
        """True if the embedded server has not ended. An external Redis counts as alive, because it may come back."""
        return self.server is None or self.server.alive


@contextmanager
def open_services(settings: Settings, *, serving: bool = False, existing: bool = False) -> Iterator[ServiceContext]:
    """Open the services on the Redis of the settings, or on an embedded one until the context ends. The server is checked.

    With `serving` other processes on this machine may use the embedded server, and a second serving process is an error. With
    `existing` a data folder without a ledger is an error, because it is probably the wrong folder.
    """
    with ExitStack() as stack:
        url, server = settings.redis_url, None
        if not url:
            if existing:
                require_ledger(settings.data_dir)
            url, server = _start_embedded(settings, stack, serving=serving)
        client = connect(url, settings.redis_timeout_s, settings.replicas_acknowledge)
        check_server(client, url)
        check_schema(client)
        stack.callback(client.close)
        yield ServiceContext(make_services(client, settings), url, server)


def _start_embedded(settings: Settings, stack: ExitStack, *, serving: bool) -> tuple[str, EmbeddedRedis | None]:
    """Return the URL of an embedded server: a new one, or that of the service with the data folder."""
    own = EmbeddedRedis(settings.data_dir, appendfsync=settings.appendfsync, offered=serving)
    try:
        stack.enter_context(own)
    except FolderInUse as taken:
        if serving or not taken.url:
            raise
        return taken.url, None
    return own.url, own
