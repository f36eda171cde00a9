"""Where gunicorn finds the application: one for each of its processes, made after the fork."""

from __future__ import annotations

import logging.config

from flask import Flask

from app.api import worker
from app.api.access import is_loopback
from app.api.app import Choices, create
from app.bootstrap import services
from app.logs import logging_for
from app.settings import Settings
from app.store.connection import connect


def application() -> Flask:
    """The application on the Redis of the settings, which need not be there yet."""
    settings = Settings.read()
    logging.config.dictConfig(logging_for(settings))
    made = services(connect(settings.redis_url or "", settings.redis_timeout_s), settings)
    worker.stopping.append(made.waiting.close)
    required = settings.require_token or not is_loopback(settings.host)
    return create(made, Choices(token_required=required, max_body_bytes=settings.max_body_bytes))
