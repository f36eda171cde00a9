"""The tasks: each is one round of a service."""

from __future__ import annotations

from functools import cache

from app.bootstrap import Services, services
from app.settings import Settings
from app.store.connection import connect
from workers.celery_app import app

HANGS_S = 40
"""Longer than a round of decisions lets itself take: then it is interrupted, and soon after killed."""


@cache
def here() -> Services:
    """The services of this process, made by its first task: a connection does not survive a fork."""
    settings = Settings.read()
    return services(connect(str(settings.redis_url), settings.redis_timeout_s), settings)


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
def audit() -> None:
    """Compare the books of every workspace."""
    here().rounds.audit()
