"""The tasks: each is one round of a service."""

from __future__ import annotations

from functools import cache

from app.bootstrap import Services, services
from app.settings import Settings
from app.store.connection import connect
from workers.celery_app import app


@cache
def here() -> Services:
    """The services of this process, made by its first task: a connection does not survive a fork."""
    settings = Settings.read()
    return services(connect(str(settings.redis_url), settings.redis_timeout_s), settings)


@app.task
def reconcile() -> None:
    """Hold capacity for those who have waited too long."""
    here().rounds.reconcile()


@app.task
def cleanup() -> None:
    """Tidy every workspace."""
    here().rounds.cleanup()


@app.task
def audit() -> None:
    """Compare the books of every workspace."""
    here().rounds.audit()
