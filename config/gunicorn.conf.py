"""How gunicorn serves the API, by the settings of Poolkeeper: what `poolkeeperd api` hands to `gunicorn --config`."""

import os
import shutil
import tempfile

from gunicorn.glogging import Logger

from app import logs
from app.settings import Settings

_settings = Settings.read()
_COUNTERS = "PROMETHEUS_MULTIPROC_DIR"  # where the counters of all processes meet; files of an earlier run would be counted in
_own_counters = None if os.environ.get(_COUNTERS) else tempfile.mkdtemp(prefix="poolkeeper-metrics-")
if _own_counters:
    os.environ[_COUNTERS] = _own_counters

bind = f"[{_settings.host}]:{_settings.port}" if ":" in _settings.host else f"{_settings.host}:{_settings.port}"
workers = _settings.api_processes
threads = _settings.api_threads
worker_class = "app.api.worker.Worker"
worker_connections = max(1000, 2 * threads)  # gthread counts idle connections among them
keepalive = 5
graceful_timeout = 15
control_socket_disable = True  # it would let whoever runs as this user stop the server
pidfile = None
proc_name = "poolkeeper-api"


class Log(Logger):
    """What gunicorn has to say goes where everything goes; the app writes a line a request itself."""

    def setup(self, cfg):
        """As every process of the service does."""
        logs.begin(_settings)

    def access(self, *_):
        """Nothing."""


logger_class = Log


def child_exit(server, worker):
    """A process has ended: its gauges count no more."""
    from prometheus_client import multiprocess  # not before the folder is set

    multiprocess.mark_process_dead(worker.pid)


def on_exit(server):
    """All have ended."""
    if _own_counters:
        shutil.rmtree(_own_counters, ignore_errors=True)
