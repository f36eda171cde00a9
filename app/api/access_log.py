"""The access log: an entry for each request that failed or took long, and for a sample of the others."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from flask import Request

from app.api.client_address import client_address
from app.settings import Settings

log = logging.getLogger("poolkeeper.access")

FAILURE_STATUS = 400
"""The lowest status of a request that failed."""


@dataclass(frozen=True, slots=True)
class AccessLog:
    """The writer of the access log."""

    slow_ms: int
    """A request that takes longer is logged. A long poll waits on purpose, so its time does not count. 0: every request."""
    sample_percent: int
    """The percent of all other requests that is logged; 0: none."""
    chance: Callable[[], float] = random.random

    @classmethod
    def of(cls, settings: Settings) -> AccessLog:
        """Return the access log of these settings."""
        return cls(settings.access_log_slow_ms, settings.access_log_sample_percent)

    def record(self, http_request: Request, status: int, duration_s: float, **fields: Any) -> None:
        """Log a request if it failed or took long, else perhaps as one of the sample."""
        duration_ms = duration_s * 1000
        is_slow = duration_ms > self.slow_ms and "wait_s" not in http_request.args
        if status >= FAILURE_STATUS or is_slow:
            sample: dict[str, int] = {}
        elif self.sample_percent and self.chance() * 100 < self.sample_percent:
            sample = {"sample_percent": self.sample_percent}
        else:
            return
        path = quote(http_request.path)  # quoted: an entry is one line
        extra = {**fields, "client": client_address(http_request), "status": status, "ms": round(duration_ms, 2), **sample}
        log.info("%s %s %s", http_request.method, path, status, extra=extra)
