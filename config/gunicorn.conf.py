"""The configuration of gunicorn, from the settings of Poolkeeper. `poolkeeperd api` passes it to `gunicorn --config`."""

import gc
import glob
import os
import pathlib
import re
import resource
import shutil
from importlib import import_module

from gunicorn.glogging import Logger

from app import logging_config
from app.api.metrics import multiprocess_dir
from app.settings import Settings
from app.store.child_process import end_with_parent

_settings = Settings.read()
# The directory with the counters of all processes. Gauges of a killed process are removed.
_VARIABLE = multiprocess_dir.ENVIRONMENT_VARIABLE
_directory = os.environ.get(_VARIABLE, "")
_purpose = f"{multiprocess_dir.PURPOSE}-{os.getpid()}"  # recognised after a reload
_own_directory = _directory if f"-{_purpose}-" in os.path.basename(_directory) else None
if not _directory:
    _own_directory = str(multiprocess_dir.create_directory(_purpose))
if _own_directory and not _directory:
    os.environ[_VARIABLE] = _own_directory
else:
    os.makedirs(os.environ[_VARIABLE], exist_ok=True)
    for _gauges in glob.glob(os.path.join(glob.escape(os.environ[_VARIABLE]), "gauge_live*.db")):
        os.unlink(_gauges)

bind = f"[{_settings.host}]:{_settings.port}" if ":" in _settings.host else f"{_settings.host}:{_settings.port}"
workers = _settings.api_processes
threads = _settings.api_threads
worker_class = "app.api.server.gunicorn_worker.ApiWorker"
worker_connections = max(1000, 2 * threads)  # gthread counts idle connections among them

# Each connection is an open file, and each thread may have one more to Redis. The default of many systems is lower.
_open_files = worker_connections + threads + 200
_soft_limit, _hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
if _soft_limit != resource.RLIM_INFINITY and _soft_limit < _open_files:
    _soft_limit = _open_files if _hard_limit == resource.RLIM_INFINITY else min(_open_files, _hard_limit)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_soft_limit, _hard_limit))

keepalive = 5
forwarder_headers = ""  # no header sets the environment of the app
graceful_timeout = 15
control_socket_disable = True  # every process of this user could stop the server by it
pidfile = None
proc_name = "poolkeeper-api"


class ServerLogger(Logger):
    """The logger of gunicorn, which writes to the log of the service. The app writes the access log itself."""

    def setup(self, cfg):
        """Configure logging as in every process of the service."""
        logging_config.configure_logging(_settings)

    def access(self, *_):
        """Write nothing."""

    def warning(self, msg, *args, **kwargs):
        """Mask tokens: gunicorn quotes the input that it could not read."""
        super().warning("%s", re.sub(r"pk_[\w-]+", "pk_***", msg % args if args else str(msg)), **kwargs)


logger_class = ServerLogger


def pre_fork(server, worker):
    """Exclude the memory that the processes share from garbage collection, which would write to it."""
    gc.collect()
    gc.freeze()


def post_fork(server, worker):
    """End the process with its server: otherwise it would keep the port after the server was killed."""
    end_with_parent(worker.ppid)


def child_exit(server, worker):
    """Merge the counters of the process into the sums of all ended processes."""
    multiprocess_dir.merge_process(pathlib.Path(os.environ[_VARIABLE]), worker.pid)


def on_exit(server):
    """Remove the directory of the counters."""
    if _own_directory:
        shutil.rmtree(_own_directory, ignore_errors=True)


def on_starting(server):
    """Load the application once, before the fork; each process makes its own connections."""
    import_module("app.wsgi").prepare_before_fork()  # not before the directory is set
