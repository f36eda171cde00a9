"""Ids of requests: when and by chance, so that they sort by age and nobody has to ask for one."""

from __future__ import annotations

import secrets
import time

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


def _digits(number: int, count: int) -> str:
    return "".join(_DIGITS[number >> 5 * place & 31] for place in reversed(range(count)))


def request_id() -> str:
    """Twenty letters and digits: milliseconds (45 bits), then chance (55 bits)."""
    return _digits(time.time_ns() // 1_000_000, 9) + _digits(secrets.randbits(55), 11)
