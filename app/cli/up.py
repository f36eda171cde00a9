"""`poolkeeperd up`: the whole service on this machine until Ctrl-C, with an embedded Redis unless the settings name one."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import click
from setproctitle import getproctitle

from app import celery_brokers
from app.api.metrics import multiprocess_dir
from app.bootstrap import ServiceContext, open_services
from app.cli.context import CONFIG, read_settings, report_errors, start_notes
from app.cli.exit_codes import ExitCode
from app.cli.listen_address import check_bindable, local_url, require_token_if_reachable
from app.cli.log_rotation import LogRotation
from app.cli.preloaded_process import PreloadedProcess, preload
from app.cli.process_commands import ROOT, config_file, environment, modules
from app.cli.supervisor import ManagedProcess, Supervisor
from app.domain.declaration import Declaration
from app.domain.errors import Refusal
from app.domain.setting_kinds import InvalidSetting
from app.service import pools_file
from app.settings import Settings
from app.store.celery_url import celery_broker
from app.store.connection import redact_url
from app.store.embedded_redis import FolderLock

USUAL = "http://127.0.0.1:8080"
LOOK_EVERY_S = 0.05
NOT_YET_S = 30
"""Seconds after which a line says why the service is not ready."""

SAMPLE_POOL, SAMPLE_COMPONENT = "gpus", "research"
TRY_SAMPLE = (
    f"pool describe {SAMPLE_POOL}",
    f"request submit --component {SAMPLE_COMPONENT} --gpu 2",
    f"pool requests {SAMPLE_POOL} --view all",
)
TRY = ("pool list", "request list", "top")


@dataclass
class StopSignal:
    """The request to stop, by Ctrl-C or SIGTERM. The second one kills all processes."""

    requested: threading.Event = field(default_factory=threading.Event)
    supervisor: Supervisor | None = None

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal. Before there are processes to stop in order, raise KeyboardInterrupt."""
        if not self.supervisor and _in_a_finalizer(frame):
            again = threading.Timer(0.01, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        if self.requested.is_set() and self.supervisor:
            self.supervisor.kill()
        self.requested.set()
        if not self.supervisor:
            raise KeyboardInterrupt


def _in_a_finalizer(frame: FrameType | None) -> bool:
    """True if a finalizer runs, in which Python prints an exception and goes on."""
    while frame and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


@click.command()
@CONFIG
@click.option(
    "--pools", "file", type=click.Path(path_type=Path, dir_okay=False), help="Pools file to apply if there are no pools."
)
@click.option("--no-pools", is_flag=True, help="Start without the sample pools.")
def up(config: Path | None, file: Path | None, no_pools: bool) -> None:
    """Run the whole service until Ctrl-C. It starts the API, a worker and beat, and an embedded Redis if none is set.

    \b
    poolkeeperd up
    POOLKEEPER_REDIS_URL=redis://127.0.0.1:6379/0 poolkeeperd up --pools our-pools.yaml
    """
    getproctitle()  # finds the memory for process titles, which has to happen before the environment changes
    settings = read_settings(config)
    with report_errors(), stopping() as stop_signal, _runtime_folder(settings) as counters:
        pools = None if no_pools else _pools(file)
        port = check_bindable(settings.host, settings.port)
        if settings.redis_url:
            celery_broker(settings.broker_url or settings.redis_url)
        celery_brokers.check_brokers(settings)
        with open_services(settings, serving=True) as context:
            _require_safe_address(settings, context)
            _declare(context, pools)
            secret = _first_token(settings, context)
            environ = environment(settings, config, redis_url=context.url, port=port)
            os.environ.clear()  # the processes are forks of this one
            os.environ.update(environ | {multiprocess_dir.ENVIRONMENT_VARIABLE: str(counters)})
            preload()
            supervisor = Supervisor(_managed_processes(settings), context.server, _report, LogRotation.of(settings))
            _serve(supervisor, stop_signal, _Endpoint(settings, port, context, secret))
    click.echo("stopped")


def _report(line: str) -> None:
    click.echo(line, err=True)


@contextmanager
def stopping() -> Iterator[StopSignal]:
    """Handle Ctrl-C and SIGTERM in this context. Before the service runs, they end the process."""
    stop_signal = StopSignal()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, stop_signal.on_signal) for number in numbers}
    before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, the kernel keeps no exit codes
    try:
        yield stop_signal
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _pools(file: Path | None) -> Declaration:
    """Return the pools of the file, or the sample pools. Raise ValueError if the file is missing or invalid."""
    file = file or config_file("pools.yaml")
    try:
        text = file.read_text("utf-8")
        declaration = pools_file.read(text)
        pools_file.require_quotas(declaration, text)
        return declaration
    except OSError as error:
        raise ValueError(f"{file}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _require_safe_address(settings: Settings, context: ServiceContext) -> None:
    try:
        require_token_if_reachable(settings, context.services.tokens.any_exist)
    except InvalidSetting as wrong:
        click.echo(f"poolkeeperd: {wrong}", err=True)
        sys.exit(ExitCode.USAGE)


def _declare(context: ServiceContext, pools: Declaration | None) -> None:
    if pools and not context.services.pools.list_names("default"):
        try:
            context.services.declarations.apply("default", pools)
        except Refusal as why:
            raise ValueError(f"the pools cannot be applied: {why}; --no-pools starts without them") from why


def _first_token(settings: Settings, context: ServiceContext) -> str | None:
    """Create an admin token if calls need a token and there is none. Return its secret."""
    if not settings.require_token or context.services.tokens.any_exist():
        return None
    return context.services.tokens.create("up", "admin", ["*"])[1]


@contextmanager
def _runtime_folder(settings: Settings) -> Iterator[Path]:
    """Yield the folder of the API's counters, in shared memory if there is any. The data folder, with the logs, is locked."""
    lock = None
    if settings.redis_url:  # else the embedded server locks the folder
        try:
            settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = FolderLock(settings.data_dir)
        except OSError as error:
            raise ValueError(f"cannot use the data folder {settings.data_dir.absolute()}: {error.strerror}") from error
    folder = multiprocess_dir.create_directory()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock:
            lock.release()


def _managed_processes(settings: Settings) -> list[ManagedProcess]:
    logs = settings.data_dir.absolute() / "log"
    logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    rotation = LogRotation.of(settings)
    return [
        ManagedProcess(name, partial(PreloadedProcess, module, arguments, log, ROOT), log, rotation)
        for name, (module, *arguments) in modules().items()
        for log in [logs / f"{name}.log"]
    ]


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """The address of the service, and the text that shows it."""

    settings: Settings
    port: int
    context: ServiceContext
    secret: str | None

    @property
    def url(self) -> str:
        return local_url(self.settings, self.port)

    def answers(self) -> str:
        """Return the answer of /readyz: empty if the service is ready, else the problem."""
        parts = urlsplit(self.url)
        connection = HTTPConnection(str(parts.hostname), parts.port, timeout=2)
        try:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            return "" if answer.status == 200 else f"{answer.status} {answer.read(500).decode(errors='replace')}"
        except (OSError, HTTPException) as error:
            return str(error)
        finally:
            connection.close()

    def sign(self) -> str:
        """Return the text that is printed when the service is ready."""
        data = self.settings.data_dir.absolute()
        redis = f"embedded, data in {data}" if self.context.server else redact_url(self.context.url)
        lines = [
            f"Poolkeeper is ready at {self.url} (dashboard; API: {self.url}/docs)",
            f"Redis: {redis}; logs: {data / 'log'}",
        ]
        lines += [f"Note: {note}" for note in start_notes(self.settings)]
        if self.secret:
            lines.append("An admin token was created. It is not shown again.")
        lines.append("Try, in another terminal:")
        lines += [f"  {line}" for line in self.tries()]
        return "\n".join([*lines, "Ctrl-C stops."])

    def tries(self) -> list[str]:
        """Return the lines to type first: with the sample pools a request, else lists."""
        client_environ = {"POOLKEEPER_URL": self.url if self.url != USUAL else None, "POOLKEEPER_TOKEN": self.secret}
        exports = [f"export {name}={value}" for name, value in client_environ.items() if value]
        return exports + [f"{_command_line()} {words}" for words in (TRY_SAMPLE if self.has_sample() else TRY)]

    def has_sample(self) -> bool:
        """True if the sample pool exists and has a policy for the component of the proposed request."""
        with suppress(Refusal):
            self.context.services.pools.get_policy("default", SAMPLE_POOL, SAMPLE_COMPONENT)
            return True
        return False


def _command_line() -> str:
    """Return the command `poolkeeper`: its name if PATH finds the one of this installation, else its path."""
    installed = Path(sys.executable).with_name("poolkeeper")
    on_path = shutil.which("poolkeeper")
    if not installed.exists() or (on_path and Path(on_path).samefile(installed)):
        return "poolkeeper"
    return str(installed.relative_to(Path.cwd()) if installed.is_relative_to(Path.cwd()) else installed)


def _serve(supervisor: Supervisor, stop_signal: StopSignal, endpoint: _Endpoint) -> None:
    stop_signal.supervisor = supervisor
    try:
        _open(supervisor, stop_signal, endpoint)
        while not stop_signal.requested.wait(LOOK_EVERY_S):
            supervisor.watch()
    finally:
        supervisor.stop()


def _open(supervisor: Supervisor, stop_signal: StopSignal, endpoint: _Endpoint) -> None:
    """Watch the processes until the service is ready, or has to stop."""
    late = time.monotonic() + NOT_YET_S
    while not stop_signal.requested.is_set():
        supervisor.watch()
        why = endpoint.answers()
        if not why:
            supervisor.mark_ready()
            return click.echo(endpoint.sign())
        if time.monotonic() > late:
            late = float("inf")
            click.echo(f"not ready yet: {why}", err=True)
        stop_signal.requested.wait(LOOK_EVERY_S)
    return None
