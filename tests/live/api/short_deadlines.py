"""The application with shorter deadlines than usual, so that its tests are quick."""

from __future__ import annotations

import resource

from flask import Flask

from app import wsgi
from app.api.server import gunicorn_worker, io_deadlines

WITHIN_S = 1.5


FILES = 60


def short_of_files() -> Flask:
    """Return the application in a process that may have few open files, connections included."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    return wsgi.application()


def application() -> Flask:
    """Return the application with a deadline of a second and a half for its clients."""
    io_deadlines.READ_WITHIN_S = WITHIN_S
    gunicorn_worker.SEND_WITHIN_S = 1
    return wsgi.application()
