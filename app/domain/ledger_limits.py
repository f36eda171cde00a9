"""The bounds on the records that one call of the ledger touches, and on the time that records are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FENCE_JUMP: Final = 10**9
"""The least jump of the fence counter under a new master: more than the grants of an old master before it is stopped."""

MAX_STEPS = 500
"""The Redis commands after which a script begins no more work (1 to 2 ms). The reply then says `more`."""

MAX_VICTIM_HOLDS: Final = 128
"""The most open victim holds of a pool. A script that judges its lanes reads each of them (15 µs)."""


@dataclass(frozen=True, slots=True)
class LedgerLimits:
    """The limits of a ledger. Their defaults are those of the settings with the same names."""

    chunk: int = 200
    events_kept: int = 100_000
    retention_s: int = 7 * 86_400
    idempotency_ttl_s: int = 86_400
