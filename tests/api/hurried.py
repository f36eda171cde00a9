"""The application with less patience than usual, so that nobody who tests it has to wait for long."""

from __future__ import annotations

from flask import Flask

from app.api import reading, worker, wsgi

WITHIN_S = 1.5


def application() -> Flask:
    """The application, patient for a second and a half."""
    reading.WITHIN_S = WITHIN_S
    worker.SEND_WITHIN_S = 1
    return wsgi.application()
