"""The consumer of a worker: it takes any error for a lost connection and connects again.

Celery ends the worker for every error that it does not count among those of the connection. Some outages of Redis raise others:
an answer such as READONLY, OOM or NOREPLICAS, or an error of kombu that finds its connection closed under it.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from celery.worker.consumer import Consumer

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""The pause before it connects again."""


class ReconnectingConsumer(Consumer):
    """A consumer that outlasts every error of its broker."""

    class Blueprint(Consumer.Blueprint):  # type: ignore[valid-type,misc]
        """The steps of the consumer, of which the last one waits for messages."""

        def start(self, parent: Any) -> None:
            """Run the steps. Raise an error of the connection for any error but a request to end."""
            try:
                super().start(parent)
            except parent.connection_errors:
                raise
            except Exception as error:
                log.warning("the broker is connected anew after %s: %s", type(error).__name__, error)
                time.sleep(RETRY_S)
                raise ConnectionError(f"{type(error).__name__}: {error}") from error
