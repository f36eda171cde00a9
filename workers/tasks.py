"""The tasks: each is one round of a service."""

from __future__ import annotations

from functools import cache

from app.bootstrap import Services, services
from app.settings import Settings
from app.store.connection import connect
from app.store.scripts import observe
from app.tracing import Traces
from workers.celery_app import app

HANGS_S = 40
"""Longer than a round of decisions lets itself take: then it is interrupted, and soon after killed."""


@cache
def here() -> Services:
    """The services of this process, made by its first task: a connection does not survive a fork."""
    settings = Settings.read()
    client = connect(str(settings.redis_url), settings.redis_timeout_s)
    if settings.traces:
        observe(client, traces().script)
    return services(client, settings)


@cache
def traces() -> Traces:
    """The spans of this process, each task one of them from the next on."""
    begun = Traces("poolkeeper-worker")
    begun.of_tasks()
    return begun


@app.task(soft_time_limit=HANGS_S, time_limit=HANGS_S + 10)
def reconcile() -> None:
    """Decide in every workspace who is preempted, and do what is due."""
    here().rounds.reconcile()


@app.task(soft_time_limit=HANGS_S, time_limit=HANGS_S + 10)
def share() -> None:
    """Work out fair shares anew, and decide by them."""
    here().rounds.share()


@app.task(soft_time_limit=HANGS_S, time_limit=HANGS_S + 10)
def reconcile_one(workspace: str) -> None:
    """Decide in a workspace that was nudged."""
    here().rounds.reconcile_one(workspace)


@app.task
def cleanup() -> None:
    """Tidy every workspace."""
    here().rounds.cleanup()


@app.task
def sample() -> None:
    """Note how much of every pool is used."""
    here().rounds.sample()


@app.task
def audit() -> None:
    """Compare the books of every workspace."""
    here().rounds.audit()
