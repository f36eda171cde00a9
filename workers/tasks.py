"""The tasks: each is one round of a service."""

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
"""Longer than a round of decisions lets itself take: then it is interrupted, and soon after killed."""


@cache
def services() -> Services:
    """The services of this process, made by its first task: a connection does not survive a fork."""
    settings = Settings.read()
    client = connect(str(settings.redis_url), settings.redis_timeout_s, settings.replicas_acknowledge)
    watch_master(client)
    check = check_schema_before_scripts(client)
    observe(client, check, *([traces().script_span] if settings.traces else []))
    return make_services(client, settings)


@cache
def traces() -> Tracing:
    """The spans of this process, each task one of them from the next on."""
    worker_traces = Tracing("poolkeeper-worker")
    worker_traces.instrument_celery()
    return worker_traces


@app.task(soft_time_limit=TIME_LIMIT_S, time_limit=TIME_LIMIT_S + 10)
def reconcile() -> None:
    """Decide in every workspace who is preempted, and do what is due."""
    services().periodic_jobs.reconcile()


@app.task(soft_time_limit=TIME_LIMIT_S, time_limit=TIME_LIMIT_S + 10)
def update_fair_shares() -> None:
    """Work out fair shares anew, and decide by them."""
    services().periodic_jobs.update_fair_shares()


@app.task(soft_time_limit=TIME_LIMIT_S, time_limit=TIME_LIMIT_S + 10)
def reconcile_workspace(workspace: str) -> None:
    """Decide in a workspace that was nudged."""
    services().periodic_jobs.reconcile_workspace(workspace)


@app.task
def cleanup() -> None:
    """Tidy every workspace."""
    services().periodic_jobs.cleanup()


@app.task
def record_usage() -> None:
    """Note how much of every pool is used."""
    services().periodic_jobs.record_usage()


@app.task
def audit() -> None:
    """Compare the books of every workspace."""
    services().periodic_jobs.audit()
