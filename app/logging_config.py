"""The logging of every process of the service: each entry is one line on stderr, as JSON or as text."""

from __future__ import annotations

import json
import logging
import time
from logging.config import dictConfig
from typing import Any

from app.settings import Settings

_OMITTED_FIELDS = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "data"}
"""The fields of every record, and those that Celery repeats for each task."""


class JsonFormatter(logging.Formatter):
    """A formatter that writes an entry as one line of JSON: time, level, logger, message and the `extra` fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
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
    """A formatter that writes an entry for people. The traceback of an error follows on lines of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")


def logging_config(settings: Settings) -> dict[str, Any]:
    """Return the argument of `dictConfig`: every logger goes through the root, without Celery's lines for each tick."""
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
    """Configure the logging of this process. Warnings of Python are entries as well."""
    logging.captureWarnings(True)
    dictConfig(logging_config(settings))
