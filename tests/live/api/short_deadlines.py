"""The application with less patience than usual, so that nobody who tests it has to wait for long."""

from __future__ import annotations

import resource

from flask import Flask

from app import wsgi
from app.api.server import gunicorn_worker, io_deadlines

WITHIN_S = 1.5


FILES = 60


def short_of_files() -> Flask:
    """The application in a process that may have few files open, connections among them."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    return wsgi.application()


def application() -> Flask:
    """The application, patient for a second and a half."""
    io_deadlines.READ_WITHIN_S = WITHIN_S
    gunicorn_worker.SEND_WITHIN_S = 1
    return wsgi.application()
