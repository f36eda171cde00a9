"""Where gunicorn finds the application: one for each of its processes, made after the fork.

The API knows nothing of the dashboard, so this is where the two are put together.
"""

from __future__ import annotations

import logging.config

from flask import Flask

from app import dashboard
from app.api.app import HttpOptions, create_app
from app.api.auth import is_loopback
from app.api.metrics.process_metrics import ProcessMetrics
from app.api.server import gunicorn_worker
from app.bootstrap import make_services
from app.logging_config import logging_config
from app.settings import Settings
from app.store.connection import connect
from app.store.scripts import observe
from app.tracing import Tracing


def application() -> Flask:
    """The application on the Redis of the settings, which need not be there yet."""
    settings = Settings.read()
    logging.config.dictConfig(logging_config(settings))
    client, counted = connect(settings.redis_url or "", settings.redis_timeout_s), ProcessMetrics()
    traces = Tracing("poolkeeper-api") if settings.traces else None
    observe(client, counted.time_script, *([traces.script_span] if traces else []))
    made = make_services(client, settings)
    gunicorn_worker.stop_callbacks.append(made.long_polls.close)
    required = settings.require_token or not is_loopback(settings.host)
    choices = HttpOptions(token_required=required, max_body_bytes=settings.max_body_bytes)
    app = create_app(made, choices, counted, extensions=[dashboard.add_dashboard])
    if traces:
        traces.instrument_app(app)
        gunicorn_worker.stop_callbacks.append(traces.flush)
    return app
