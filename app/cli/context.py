"""The context of every command of `poolkeeperd`: its settings, and one line for an error of its surroundings."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

from app.bootstrap import ServiceContext
from app.cli.exit_codes import ExitCode
from app.domain import variable_names
from app.domain.errors import Refusal, StoreUnavailable
from app.domain.setting_kinds import InvalidSetting
from app.settings import Settings
from app.store.connection import StoreMisconfigured, redact_url

CONFIG = click.option(
    "--config", type=click.Path(path_type=Path, dir_okay=False), help="Settings file. POOLKEEPER_* variables override it."
)


def read_settings(config: Path | None) -> Settings:
    """Return the settings, and set up the logging. An invalid setting ends the process: one line and exit code 2."""
    try:
        settings = Settings.read(config)
    except InvalidSetting as wrong:
        click.echo(f"poolkeeperd: {wrong}", err=True)
        sys.exit(ExitCode.USAGE)
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return settings


def start_notes(settings: Settings, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return a note for each circumstance of this start that is allowed but probably unwanted."""
    notes = []
    if os.geteuid() == 0:
        notes.append("the service runs as root, and needs no root rights: start it as a user of its own")
    if "POOLKEEPER_PORT" in variable_names.service_links(environ):
        notes.append(
            f"POOLKEEPER_PORT={environ['POOLKEEPER_PORT']} is the address of a service, set by Kubernetes or Docker, and not "
            f"the setting: port {settings.port} is used; enableServiceLinks: false removes such variables from a pod"
        )
    return notes


@contextmanager
def report_errors() -> Iterator[None]:
    """End the process with one line and exit code 1 for a refusal, an error of Redis or a wrong value."""
    try:
        yield
    except (StoreMisconfigured, StoreUnavailable, Refusal, ValueError) as wrong:
        click.echo(f"poolkeeperd: {wrong}", err=True)
        sys.exit(ExitCode.FAILED)


def describe_redis(here: ServiceContext, settings: Settings) -> str:
    """Return the Redis of the command, in words."""
    if settings.redis_url:
        return redact_url(settings.redis_url)
    data = settings.data_dir.absolute()
    return f"an embedded Redis, data in {data}" if here.server else f"the service that runs on {data}"
