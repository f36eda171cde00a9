"""Where gunicorn finds the application: one for each of its processes, made after the fork.

The API knows nothing of the dashboard, so this is where the two are put together.
"""

from __future__ import annotations

import logging.config

from flask import Flask

from app import dashboard
from app.api.app import Choices, create
from app.api.auth import is_loopback
from app.api.metrics.process_metrics import Counted
from app.api.server import gunicorn_worker
from app.bootstrap import services
from app.logging_config import logging_for
from app.settings import Settings
from app.store.connection import connect
from app.store.scripts import observe
from app.tracing import Traces


def application() -> Flask:
    """The application on the Redis of the settings, which need not be there yet."""
    settings = Settings.read()
    logging.config.dictConfig(logging_for(settings))
    client, counted = connect(settings.redis_url or "", settings.redis_timeout_s), Counted()
    traces = Traces("poolkeeper-api") if settings.traces else None
    observe(client, counted.script, *([traces.script] if traces else []))
    made = services(client, settings)
    gunicorn_worker.stopping.append(made.waiting.close)
    required = settings.require_token or not is_loopback(settings.host)
    choices = Choices(token_required=required, max_body_bytes=settings.max_body_bytes)
    app = create(made, choices, counted, beside=[dashboard.add])
    if traces:
        traces.of_app(app)
        gunicorn_worker.stopping.append(traces.flush)
    return app
