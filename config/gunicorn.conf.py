"""How gunicorn serves the API, by the settings of Poolkeeper: what `poolkeeperd api` hands to `gunicorn --config`."""

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

_settings = Settings.read()
# Where the counters of all processes meet. What a process that was killed said of the moment counts no more.
_COUNTERS = multiprocess_dir.VARIABLE
_given = os.environ.get(_COUNTERS, "")
_prefix = f"{multiprocess_dir.PREFIX}{os.getpid()}-"  # known again after a reload
_own_counters = _given if os.path.basename(_given).startswith(_prefix) else None
if not _given:
    _own_counters = str(multiprocess_dir.made(_prefix))
if _own_counters and not _given:
    os.environ[_COUNTERS] = _own_counters
else:
    os.makedirs(os.environ[_COUNTERS], exist_ok=True)
    for _stale in glob.glob(os.path.join(glob.escape(os.environ[_COUNTERS]), "gauge_live*.db")):
        os.unlink(_stale)

bind = f"[{_settings.host}]:{_settings.port}" if ":" in _settings.host else f"{_settings.host}:{_settings.port}"
workers = _settings.api_processes
threads = _settings.api_threads
worker_class = "app.api.server.gunicorn_worker.Worker"
worker_connections = max(1000, 2 * threads)  # gthread counts idle connections among them

# Each of those is an open file, and a thread at work may have one more to Redis: many systems begin with fewer.
_open_files = worker_connections + threads + 200
_allowed, _most = resource.getrlimit(resource.RLIMIT_NOFILE)
if _allowed != resource.RLIM_INFINITY and _allowed < _open_files:
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (_open_files if _most == resource.RLIM_INFINITY else min(_open_files, _most), _most)
    )

keepalive = 5
forwarder_headers = ""  # nobody may set the environment of the app by a header
graceful_timeout = 15
control_socket_disable = True  # it would let whoever runs as this user stop the server
pidfile = None
proc_name = "poolkeeper-api"


class Log(Logger):
    """What gunicorn has to say goes where everything goes; the app writes a line a request itself."""

    def setup(self, cfg):
        """As every process of the service does."""
        logging_config.begin(_settings)

    def access(self, *_):
        """Nothing."""

    def warning(self, msg, *args, **kwargs):
        """What gunicorn could not read it quotes, and there may be a token in it."""
        super().warning("%s", re.sub(r"pk_[\w-]+", "pk_***", msg % args if args else str(msg)), **kwargs)


logger_class = Log


def child_exit(server, worker):
    """A process has ended: what it counted is kept, in one place with what all others did that have ended."""
    multiprocess_dir.ended(pathlib.Path(os.environ[_COUNTERS]), worker.pid)


def on_exit(server):
    """All have ended."""
    if _own_counters:
        shutil.rmtree(_own_counters, ignore_errors=True)


def on_starting(server):
    """What every process needs is loaded once, before they fork; what they connect with is made by each."""
    import_module("app.wsgi")  # not before the folder is set
