"""A server that forks processes whose libraries are imported already; `tests.support.forked_process` starts it and calls it.

The server imports no module that reads the environment while it is imported: `workers.celery_app`, an app of the tests,
`prometheus_client`. The new process imports these.
"""

from __future__ import annotations

import ctypes
import gc
import os
import runpy
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, wait
from pkgutil import iter_modules
from typing import Final

PR_SET_PDEATHSIG: Final = 1
"""The option of prctl(2) that sets the signal a process gets when its parent ends."""
CELERY: Final = (
    "celery.__main__",
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.backends.redis",
    "celery.bin.celery",
    "celery.concurrency.prefork",
    "celery.concurrency.thread",
    "celery.worker.consumer",
    "kombu.transport.redis",
)
SCHEMAS: Final = "app.api.schemas"
"""A package of which all modules are imported."""
LIBRARIES: Final[Mapping[str, Sequence[str]]] = {
    "workers.celery_app": (*CELERY, "app.celery_brokers", "workers.outbox_dispatcher", "workers.nudge_listener"),
    "gunicorn": ("app.bootstrap", SCHEMAS, "gunicorn.app.wsgiapp", "gunicorn.workers.gthread"),
    "celery": (*CELERY, "poolkeeper.celery"),
}
"""A word of a command line → the modules that such a process imports; the first of these words that occurs decides."""


@dataclass(frozen=True)
class ForkJob:
    """A module to run, as `python -P -m` does."""

    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    output: str


def import_libraries(job: ForkJob) -> None:
    """Import the libraries of a job that are not imported yet."""
    words = [job.module, *job.arguments]
    for name in next((names for word, names in LIBRARIES.items() if word in words), ()):
        package = import_module(name)
        if name == SCHEMAS:
            for module in iter_modules(package.__path__, f"{name}."):
                import_module(module.name)
    assert "prometheus_client" not in sys.modules
    gc.freeze()  # so that a collection in a child copies no page


def serve(connection: Connection) -> ForkJob | None:
    """Fork a process for each job and report its end; return the job in the new process, None in the server at its end."""
    wakeup, write_wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    os.set_blocking(write_wakeup, False)
    signal.set_wakeup_fd(write_wakeup, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler nothing is written to the wakeup pipe
    children = set[int]()
    while True:
        ready = wait([connection, wakeup])
        if wakeup in ready:
            os.read(wakeup, 65536)  # bytes: all that the pipe can hold
            report_ends(connection, children)
        if connection in ready:
            try:
                job: ForkJob = connection.recv()
            except EOFError:
                break
            import_libraries(job)
            if not (pid := fork()):
                connection.close()  # before another file gets its descriptor
                prepare_process(job)
                return job
            children.add(pid)
            connection.send((pid, None))
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    return None


def fork() -> int:
    """Fork a process that has a session of its own and ends with the server; return its id, or 0 in the new process."""
    server, (reader, writer) = os.getpid(), os.pipe()
    if pid := os.fork():
        os.close(writer)
        os.read(reader, 1)  # returns when the new process has closed its end
        os.close(reader)
        return pid
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != server:  # it ended before it could be watched
            os._exit(1)
    os.close(writer)
    return 0


def report_ends(connection: Connection, children: set[int]) -> None:
    """Send the process id and the exit code of each child that has ended."""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        children.discard(pid)
        with suppress(BrokenPipeError):
            connection.send((pid, os.waitstatus_to_exitcode(status)))


def prepare_process(job: ForkJob) -> None:
    """Set the files, the folder, the environment and the arguments of this process as if it were started for the job."""
    os.umask(0o077)
    output = os.open(job.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(job.environment)
    time.tzset()
    os.chdir(job.folder)
    paths = job.environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path and path not in sys.path]
    sys.argv[:] = [job.module, *job.arguments]


def main(descriptor: int) -> None:
    """Serve until the other side of the connection is closed; in a new process, run its job."""
    job = serve(Connection(descriptor))
    if job:
        runpy.run_module(job.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
