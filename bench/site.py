"""The application as gunicorn serves it, with one view more that does nothing: what the server and Flask cost by themselves."""

from __future__ import annotations

from flask import Flask, Response

from app import wsgi

EMPTY = "/empty"


def application() -> Flask:
    """The application of the API and its empty view, which goes through all that is done around every request."""
    app = wsgi.application()
    app.add_url_rule(EMPTY, "empty", lambda: Response("{}", 200, mimetype="application/json"), methods=["POST"])
    return app
