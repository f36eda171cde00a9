"""`poolkeeperd api`, `worker` and `beat`: each runs one process of the service, on an external Redis."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from app import celery_brokers, logging_config
from app.bootstrap import make_services
from app.cli.context import CONFIG, read_settings, report_errors, start_notes
from app.cli.exit_codes import ExitCode
from app.cli.listen_address import check_bindable, is_loopback, require_token_if_reachable
from app.cli.process_commands import ROOT, commands, environment
from app.domain.errors import StoreUnavailable
from app.domain.setting_kinds import InvalidSetting
from app.settings import Settings
from app.store.celery_url import celery_broker
from app.store.connection import check_server, connect, parse_url
from app.store.schema import SchemaMismatch, check_schema

log = logging.getLogger(__name__)


@click.command()
@CONFIG
def api(config: Path | None) -> None:
    """Serve the HTTP API. While Redis is not available, calls are answered 503."""
    settings = _read_settings(config)
    with report_errors():
        _needs_redis(settings, "api")
        parse_url(str(settings.redis_url))
        check_bindable(settings.host, settings.port)
        _report_unavailable_redis(settings)
        reachable = not is_loopback(settings.host)
        _require_safe_address(settings)
    # If the last token is revoked later, a service that other machines can reach must still need a token.
    _replace_process("api", settings, environment(settings, config, **({"require_token": 1} if reachable else {})))


@click.command()
@CONFIG
def worker(config: Path | None) -> None:
    """Run a worker for the periodic jobs and the dispatch of tasks. Any number of workers may run."""
    settings = _read_settings(config)
    with report_errors():
        _needs_redis(settings, "worker")
        celery_broker(str(settings.broker_url or settings.redis_url))
        celery_brokers.check_brokers(settings)
        _report_unavailable_redis(settings)
    _replace_process("worker", settings, environment(settings, config))


@click.command()
@CONFIG
def beat(config: Path | None) -> None:
    """Run beat, which starts the periodic jobs. One is enough; more do no harm."""
    settings = _read_settings(config)
    with report_errors():
        _needs_redis(settings, "beat")
        celery_broker(str(settings.broker_url or settings.redis_url))
        _report_unavailable_redis(settings)
    _replace_process("beat", settings, environment(settings, config))


def _read_settings(config: Path | None) -> Settings:
    """Return the settings, and configure the logging of the process that replaces this one."""
    settings = read_settings(config)
    logging_config.configure_logging(settings)
    return settings


def _needs_redis(settings: Settings, name: str) -> None:
    if not settings.redis_url:
        click.echo(f"poolkeeperd: {name} needs POOLKEEPER_REDIS_URL; `poolkeeperd up` starts a Redis of its own", err=True)
        sys.exit(ExitCode.USAGE)


def _report_unavailable_redis(settings: Settings) -> None:
    try:
        client = connect(str(settings.redis_url), settings.redis_timeout_s)
        check_server(client, str(settings.redis_url))
        check_schema(client)
    except SchemaMismatch:
        raise
    except StoreUnavailable as away:
        log.warning("%s; waiting for it", away)


def _require_safe_address(settings: Settings) -> None:
    try:
        require_token_if_reachable(settings, lambda: _tokens_exist(settings))
    except InvalidSetting as wrong:
        click.echo(f"poolkeeperd: {wrong}", err=True)
        sys.exit(ExitCode.USAGE)


def _tokens_exist(settings: Settings) -> bool:
    """True if there are tokens, or if Redis is not available: the service then requires one."""
    try:
        client = connect(str(settings.redis_url), settings.redis_timeout_s)
        return make_services(client, settings).tokens.any_exist()
    except StoreUnavailable:
        return True


def _replace_process(name: str, settings: Settings, environ: Mapping[str, str]) -> None:
    command = commands()[name]
    for note in start_notes(settings):
        log.warning("%s", note)
    os.chdir(ROOT)
    os.execve(command[0], command, environ)
