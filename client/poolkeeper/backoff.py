"""Pauses between the tries of a call."""

from __future__ import annotations

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0


def pause_s(tries: int, retry_after_s: float | None = None) -> float:
    """Return the pause after this many tries. It doubles, varies at random by a half, and is added to a Retry-After."""
    from random import uniform

    backoff: float = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(tries - 1, 10))
    return (retry_after_s or 0.0) + backoff * uniform(0.5, 1.0)
