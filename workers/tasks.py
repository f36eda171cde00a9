"""The tasks: each runs one job of a service."""

from __future__ import annotations

from functools import cache

from app.bootstrap import Services, make_services
from app.settings import Settings
from app.store.connection import connect
from app.store.master_watch import watch_master
from app.store.schema import check_schema_before_scripts
from app.store.scripts import observe
from app.tracing import Tracing
from workers.celery_app import app

TIME_LIMIT_S = 40
"""Seconds after which a reconcile is interrupted, and soon after killed. It is longer than a reconcile normally takes."""


@cache
def services() -> Services:
    """Return the services of this process. Its first task makes them, because a connection does not survive a fork."""
    settings = Settings.read()
    client = connect(str(settings.redis_url), settings.redis_timeout_s, settings.replicas_acknowledge)
    watch_master(client)
    check = check_schema_before_scripts(client)
    observe(client, check, *([traces().script_span] if settings.traces else []))
    return make_services(client, settings)


@cache
def traces() -> Tracing:
    """Return the tracing of this process. After the first call each task is a span."""
    worker_traces = Tracing("poolkeeper-worker")
    worker_traces.instrument_celery()
    return worker_traces


@app.task(soft_time_limit=TIME_LIMIT_S, time_limit=TIME_LIMIT_S + 10)
def reconcile() -> None:
    """Reconcile every workspace: decide about preemptions and enforce deadlines."""
    services().periodic_jobs.reconcile()


@app.task(soft_time_limit=TIME_LIMIT_S, time_limit=TIME_LIMIT_S + 10)
def update_fair_shares() -> None:
    """Compute the fair shares of every workspace anew, and reconcile by them."""
    services().periodic_jobs.update_fair_shares()


@app.task(soft_time_limit=TIME_LIMIT_S, time_limit=TIME_LIMIT_S + 10)
def reconcile_workspace(workspace: str) -> None:
    """Reconcile a workspace that was nudged."""
    services().periodic_jobs.reconcile_workspace(workspace)


@app.task
def cleanup() -> None:
    """Clean up every workspace."""
    services().periodic_jobs.cleanup()


@app.task
def record_usage() -> None:
    """Record the use of every pool."""
    services().periodic_jobs.record_usage()


@app.task
def audit() -> None:
    """Audit the sums and indexes of every workspace."""
    services().periodic_jobs.audit()
