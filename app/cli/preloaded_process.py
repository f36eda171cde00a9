"""A process of `poolkeeperd up`: a fork that shares the memory of the modules imported before.

`preload` imports the modules that the processes need. `PreloadedProcess` forks and runs a module in the fork, as `python -P -m`
would. The fork has a session, a folder and an output of its own, the environment of its parent, and no open file of it. The
kernel ends it when its parent is gone (Linux).
"""

from __future__ import annotations

import gc
import os
import runpy
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from app.store.child_process import end_with_parent, output_since

SHARED_MODULES = (
    "app.wsgi",
    "app.api.server.gunicorn_worker",
    "gunicorn.app.wsgiapp",
    "gunicorn.arbiter",
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.concurrency.prefork",
    "celery.worker.consumer",
    "celery.worker.strategy",
    "kombu.transport.redis",
    "workers.__main__",
)
"""The modules that several processes need."""

POLL_INTERVAL_S = 0.01
"""Seconds between two checks of the end of a process."""


def preload() -> None:
    """Import the shared modules, compose the Lua commands, and exclude both from garbage collection.

    The collector writes to each object that it visits, and a page that is written is no longer shared. The environment has to
    be that of the processes: the modules read the settings and the directory of the metrics.
    """
    for name in SHARED_MODULES:
        import_module(name)
    import_module("app.wsgi").prepare_before_fork()
    import_module("workers.celery_app").prepare_before_fork()
    gc.collect()
    gc.freeze()


class PreloadedProcess:
    """A fork that runs a module, in a session of its own, so that Ctrl-C does not reach it."""

    def __init__(self, module: str, arguments: Sequence[str], output: Path, cwd: Path) -> None:
        self._module, self._arguments, self._cwd = module, arguments, cwd
        self._output, self._output_before = output, output.stat().st_size if output.exists() else 0
        self._exit_code: int | None = None
        self.pid = self._start()

    def _start(self) -> int:
        """Fork. Return when the fork has its session, so that a signal to the session reaches it."""
        log = os.open(self._output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        ready, is_ready = os.pipe()
        try:
            pid = self._fork(log, is_ready)
            with suppress(OSError):
                select.select([ready], [], [])
        finally:
            os.close(ready)
        return pid

    def _fork(self, log: int, is_ready: int) -> int:
        """Fork, and close the files of the fork. `is_ready` is closed in the fork as well when it has its session."""
        inherited = _open_files() - {log, is_ready}
        parent, mask = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # the other thread only waits for the end of Redis
                pid = os.fork()
            if pid == 0:
                self._run(parent, log, is_ready, inherited)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(log)
            os.close(is_ready)
        return pid

    def _run(self, parent: int, log: int, is_ready: int, inherited: set[int]) -> NoReturn:
        """Run the module in the fork, and end the fork without the clean-up of its parent."""
        exit_code = 1
        try:
            os.setsid()
            end_with_parent(parent)
            _replace_files(log, inherited)
            _reset_signals()  # a signal that came since the fork ends it now, and is written to the log
            os.close(is_ready)
            os.umask(0o077)
            os.chdir(self._cwd)
            exit_code = _run_module(self._module, self._arguments)
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(exit_code)

    @property
    def alive(self) -> bool:
        """True if the process runs."""
        if self._exit_code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._exit_code = os.waitstatus_to_exitcode(status)
        return self._exit_code is None

    @property
    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""
        return None if self.alive else self._exit_code

    def stop(self, timeout_s: float = 10) -> None:
        """End the process with SIGTERM. After `timeout_s`, or after its end, kill the rest of its session."""
        self.send_signal(signal.SIGTERM)
        end = time.monotonic() + timeout_s
        while self.alive and time.monotonic() < end:
            time.sleep(POLL_INTERVAL_S)
        self.kill()

    def kill(self) -> None:
        """Kill the process with its session, and wait for its end."""
        self.send_signal(signal.SIGKILL)
        while self.alive:
            time.sleep(POLL_INTERVAL_S)

    def send_signal(self, sign: signal.Signals) -> None:
        """Send a signal and do not wait. SIGKILL goes to the whole session."""
        with suppress(ProcessLookupError, PermissionError):  # the latter on macOS, for a group that has ended
            if sign == signal.SIGKILL:
                os.killpg(self.pid, sign)
            elif self._exit_code is None:
                os.kill(self.pid, sign)

    def output_tail(self, lines: int = 10) -> str:
        """Return the last lines that the process wrote."""
        return output_since(self._output, self._output_before, lines)


def _open_files() -> set[int]:
    """Return the numbers of the open files, without the standard ones."""
    return {int(name) for name in os.listdir("/dev/fd") if int(name) > 2}


def _replace_files(log: int, inherited: set[int]) -> None:
    """Give the fork its output, and replace the files of its parent by the null device.

    An object of the parent that is collected in the fork closes the number of its file. The number must not belong to another
    file by then.
    """
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    for number in (1, 2):
        os.dup2(log, number)
    for number in inherited:
        with suppress(OSError):  # the file by which the folder was listed is closed already
            os.fstat(number)
            os.dup2(null, number, inheritable=False)
    os.close(null)
    os.close(log)


def _reset_signals() -> None:
    """Undo the handlers of the parent. Ignored signals stay ignored, such as SIGHUP under nohup."""
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler) and handler is not signal.default_int_handler:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())


def _run_module(module: str, arguments: Sequence[str]) -> int:
    """Return the exit code of a module that is run as `python -P -m` runs it."""
    if not sys.flags.safe_path and sys.path:
        del sys.path[0]  # the folder of the script, or the current one
    sys.argv = [module, *arguments]
    sys.modules.pop(f"{module}.__main__", None)  # imported by `preload`; runpy would warn that it runs a second time
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0
