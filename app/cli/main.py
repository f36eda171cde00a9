"""`poolkeeperd`: the service's own commands. Errors of set-up are one line and an exit code: 2 for a wrong setting, 1 else."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from app.bootstrap import Running, running
from app.cli.tour import tour
from app.settings import BadSetting, Settings
from app.store.connection import StoreMisconfigured, StoreUnavailable, redacted

CONFIG = click.option(
    "--config", type=click.Path(path_type=Path, dir_okay=False), help="Settings file; POOLKEEPER_* variables go before it."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="poolkeeper-server", message="poolkeeperd %(version)s")
def main() -> None:
    """Poolkeeper shares scarce capacity between the teams of an ML platform.

    Without POOLKEEPER_REDIS_URL an embedded Redis is started, which keeps its data in POOLKEEPER_DATA_DIR (./data).
    """


@main.command()
@CONFIG
@click.option("--tour/--no-tour", "touring", default=True, help="Show the core at work first, in a workspace of its own.")
@click.option("--once", is_flag=True, help="Show the core at work, then stop.")
def up(config: Path | None, touring: bool, once: bool) -> None:
    """Start Redis if none is set, show the core at work, and keep house until Ctrl-C.

    \b
    poolkeeperd up
    POOLKEEPER_REDIS_URL=redis://127.0.0.1:6379/0 poolkeeperd up --once
    """
    settings = _settings(config)
    with _clear_errors(), _until_stopped() as stopped, running(settings) as here:
        click.echo(f"Poolkeeper is on {_where(here)}")
        if touring:
            tour(here.services, click.echo)
        if once:
            return
        click.echo("Keeping house. Look in with: " + _look_in(here))
        click.echo("Ctrl-C stops.")
        _keep_house(here, settings, stopped)


@main.command()
@CONFIG
@click.argument("workspaces", nargs=-1)
@click.option("--repair", is_flag=True, help="Put right what is found.")
def audit(config: Path | None, workspaces: tuple[str, ...], repair: bool) -> None:
    """Recompute every account and queue of WORKSPACES (all, if none is named), and say what differs.

    Exit code 0: nothing differs, or it was repaired. 3: something does.
    """
    differ = 0
    with _clear_errors(), running(_settings(config)) as here:
        known = here.services.registry.all()
        if unknown := [workspace for workspace in workspaces if workspace not in known]:
            raise ValueError(f"there is no workspace {', '.join(unknown)}; there are: {', '.join(known) or 'none'}")
        for workspace in workspaces or known:
            found = here.services.audit.run(workspace, repair=repair)
            for difference in found:
                click.echo(f"{workspace}: {difference}")
            click.echo(f"{workspace}: {len(found)} differences{' repaired' if found and repair else ''}")
            differ += len(found)
    if differ and not repair:
        sys.exit(3)


@main.command()
@CONFIG
def tidy(config: Path | None) -> None:
    """Do one round of the housekeeping: lapsed leases, forgotten waiters, lost patience, old requests, unfinished work."""
    with _clear_errors(), running(_settings(config)) as here:
        done = here.services.housekeeping.tidy_all()
        for workspace, swept in done.items():
            click.echo(f"{workspace}: {swept.lapsed} leases lapsed, {swept.forgotten} waiters forgotten, {swept.pruned} pruned")
        if len(done) < len(here.services.registry.all()):
            raise ValueError("not every workspace could be tidied; see above")


def _settings(config: Path | None) -> Settings:
    try:
        settings = Settings.read(config)
    except BadSetting as wrong:
        click.echo(f"poolkeeperd: {wrong}", err=True)
        sys.exit(2)
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return settings


@contextmanager
def _clear_errors() -> Iterator[None]:
    """What is wrong with the surroundings is one line, not a traceback."""
    try:
        yield
    except (StoreMisconfigured, StoreUnavailable, ValueError) as wrong:
        click.echo(f"poolkeeperd: {wrong}", err=True)
        sys.exit(1)


@contextmanager
def _until_stopped() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set."""
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _keep_house(here: Running, settings: Settings, stopped: threading.Event) -> None:
    audited = time.monotonic()
    while not stopped.wait(settings.cleanup_interval_s):
        if not here.alive:
            raise StoreUnavailable("unreachable", "the embedded Redis has ended; its log is in the data folder")
        try:
            if here.server:
                here.server.health()
            here.services.housekeeping.tidy_all()
            if time.monotonic() - audited >= settings.audit_interval_s:
                audited = time.monotonic()
                for workspace in here.services.registry.all():
                    for difference in here.services.audit.run(workspace):
                        logging.getLogger("audit").error("%s: %s", workspace, difference)
        except StoreUnavailable as gone:
            logging.getLogger("housekeeping").warning("%s; trying again in %s s", gone, settings.cleanup_interval_s)
    click.echo("stopped")


def _where(here: Running) -> str:
    return f"an embedded Redis, data in {here.server.data_dir}" if here.server else redacted(here.url)


def _look_in(here: Running) -> str:
    if here.url.startswith("unix://"):
        return f"redis-cli -s {here.url.removeprefix('unix://')} --scan --pattern 'pk:*'"
    return f"redis-cli -u {redacted(here.url)} --scan --pattern 'pk:*'"
