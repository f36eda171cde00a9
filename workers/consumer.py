"""The consumer of a worker: it treats any error as a lost connection, and connects again.

Celery ends the worker at every error that it does not know as a connection error. Some outages of Redis raise other errors: an
answer such as READONLY, OOM or NOREPLICAS, or an error of kombu whose connection was closed meanwhile.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from celery.worker.consumer import Consumer

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""Seconds before the consumer connects again."""


class ReconnectingConsumer(Consumer):
    """A consumer that connects again after every error of its broker."""

    class Blueprint(Consumer.Blueprint):  # type: ignore[valid-type,misc]
        """The steps of the consumer; the last one waits for messages."""

        def start(self, parent: Any) -> None:
            """Run the steps. Raise a connection error in place of any error except a request to end."""
            try:
                super().start(parent)
            except parent.connection_errors:
                raise
            except Exception as error:
                log.warning("the broker is connected anew after %s: %s", type(error).__name__, error)
                time.sleep(RETRY_S)
                raise ConnectionError(f"{type(error).__name__}: {error}") from error
