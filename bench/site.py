"""The application for gunicorn with one more view, which does nothing: it shows the cost of the server and of Flask alone."""

from __future__ import annotations

from flask import Flask, Response

from app import wsgi

EMPTY = "/empty"


def application() -> Flask:
    """Return the API with the empty view, which goes through everything that Flask and the API do around a call."""
    app = wsgi.application()
    app.add_url_rule(EMPTY, "empty", lambda: Response("{}", 200, mimetype="application/json"), methods=["POST"])
    return app
