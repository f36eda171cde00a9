"""How every process of the service writes its log: one line an entry to stderr, as JSON or as text."""

from __future__ import annotations

import json
import logging
import time
from logging.config import dictConfig
from typing import Any

from app.settings import Settings

_OMITTED_FIELDS = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "data"}
"""What every record has, and what Celery repeats of each task."""


class JsonFormatter(logging.Formatter):
    """An entry as one line of JSON: when, how bad, who, what, and whatever was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        time_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "at": f"{time_text}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _OMITTED_FIELDS and name[0] != "_"}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """An entry for people; an error's trace follows on lines of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")


def logging_config(settings: Settings) -> dict[str, Any]:
    """The configuration for `dictConfig`: every logger goes through the root; what each tick says is left out."""
    line = JsonFormatter if settings.log_format == "json" else TextFormatter
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


def configure_logging(settings: Settings) -> None:
    """This process writes its log so."""
    dictConfig(logging_config(settings))
