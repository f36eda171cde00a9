"""The application for gunicorn: one in each process, created after the fork.

The API does not import the dashboard. This module combines the two.
"""

from __future__ import annotations

from functools import partial

from flask import Flask

from app import dashboard
from app.api.access_log import AccessLog
from app.api.app import HttpOptions, create_app
from app.api.auth import is_loopback
from app.api.metrics.process_metrics import ProcessMetrics
from app.api.metrics.registry import SCRIPT_DURATION
from app.api.server import gunicorn_worker
from app.api.server.availability_recorder import AvailabilityRecorder
from app.bootstrap import make_services
from app.logging_config import configure_logging
from app.settings import Settings
from app.store.connection import connect
from app.store.lua_linker import load_commands
from app.store.master_watch import watch_master
from app.store.schema import check_schema_before_scripts
from app.store.scripts import observe
from app.tracing import Tracing


def prepare_before_fork() -> None:
    """Compose the Lua commands once for all processes."""
    load_commands()


def application() -> Flask:
    """Return the application on the Redis of the settings, which may be unavailable yet."""
    settings = Settings.read()
    configure_logging(settings)
    client = connect(settings.redis_url or "", settings.redis_timeout_s, settings.replicas_acknowledge)
    process_metrics = ProcessMetrics()
    watch_master(client)
    traces = Tracing("poolkeeper-api") if settings.traces else None
    check = check_schema_before_scripts(client)
    observe(client, check, partial(process_metrics.time, SCRIPT_DURATION), *([traces.script_span] if traces else []))
    services = make_services(client, settings, in_background=True)
    recorder = AvailabilityRecorder(services.availability)
    recorder.start()
    gunicorn_worker.stop_callbacks += [services.long_polls.close, recorder.stop]
    required = settings.require_token or not is_loopback(settings.host)
    options = HttpOptions(required, settings.max_body_bytes, AccessLog.of(settings))
    app = create_app(services, options, process_metrics, extensions=[dashboard.add_dashboard])
    if traces:
        traces.instrument_app(app)
        gunicorn_worker.stop_callbacks.append(traces.flush)
    return app
