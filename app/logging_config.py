"""How every process of the service writes its log: one line an entry to stderr, as JSON or as text."""

from __future__ import annotations

import json
import logging
import time
from logging.config import dictConfig
from typing import Any

from app.settings import Settings

_LEFT_OUT = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "data"}
"""What every record has, and what Celery repeats of each task."""


class JsonLine(logging.Formatter):
    """An entry as one line of JSON: when, how bad, who, what, and whatever was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "at": f"{at}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _LEFT_OUT and name[0] != "_"}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class TextLine(logging.Formatter):
    """An entry for people; an error's trace follows on lines of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")


def logging_for(settings: Settings) -> dict[str, Any]:
    """The configuration for `dictConfig`: every logger goes through the root; what each tick says is left out."""
    line = JsonLine if settings.log_format == "json" else TextLine
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": line}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}},
        "root": {"level": settings.log_level.upper(), "handlers": ["stderr"]},
        "loggers": {
            **{name: {"propagate": True, "handlers": []} for name in ("celery", "gunicorn.error", "gunicorn.access")},
            **{name: {"level": "WARNING"} for name in ("celery.worker.strategy", "celery.app.trace", "celery.beat")},
        },
    }


def begin(settings: Settings) -> None:
    """This process writes its log so."""
    dictConfig(logging_for(settings))
