"""Reads of the dashboard: short reasons of waits, a digest that changes with the pools, and the usage history of a pool."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from app.domain.errors import NotFound
from app.domain.explanations import ShortReason
from app.domain.usage_history import UsageHistory
from app.service import explain_text
from app.service.single_flight import TtlCache
from app.service.usage_history import UsageHistories
from app.service.validation import checked_name
from app.store.ledger import Ledger
from app.store.queue_status import QueueStatusStore

DIGEST_TTL_S = 0.5
"""Seconds for which a digest is cached, for all pages that show the same pools."""
MAX_DIGESTS = 200
HISTORY_TTL_S = 10.0
"""Seconds for which a usage history is cached. Reading the history of a pool with a hundred policies takes a third of a
second."""
MAX_HISTORIES = 20
"""The most usage histories that are cached: each may take two megabytes."""


class DashboardQueries:
    """The reads of the dashboard, cached for seconds."""

    def __init__(
        self,
        queue_status: QueueStatusStore,
        ledger: Ledger,
        usage_histories: UsageHistories,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue_status, self._ledger, self._usage_histories = queue_status, ledger, usage_histories
        self._digest_cache = TtlCache[str](DIGEST_TTL_S, MAX_DIGESTS, monotonic)
        self._history_cache = TtlCache[UsageHistory](HISTORY_TTL_S, MAX_HISTORIES, monotonic)

    def list_reasons(
        self, workspace: str, pool: str, requests: Iterable[str], *, with_ids: bool = True
    ) -> dict[str, ShortReason]:
        """Return request → reason why it waits in this pool, for each that waits there. `with_ids` names other requests."""
        reasons = {}
        for request in requests:
            with suppress(NotFound):
                _, statuses = self._queue_status.list_statuses(checked_name(workspace), request)
                for status in statuses:
                    if status.pool == pool:
                        reasons[request] = ShortReason(
                            status.wait_reason, explain_text.describe_briefly(status, with_ids=with_ids)
                        )
        return reasons

    def read_clock(self, workspace: str) -> int:
        """Return the time of Redis, by which leases and deadlines run. The clock of this machine may differ."""
        return self._queue_status.read_clock(checked_name(workspace))

    def get_history(self, workspace: str, pool: str) -> UsageHistory:
        """Return the usage of a pool over the last hours, at most HISTORY_TTL_S old."""
        key = checked_name(workspace), checked_name(pool)
        return self._history_cache.get(key, lambda: self._usage_histories.get(*key))

    def get_digest(self, workspace: str, pools: Iterable[str]) -> str:
        """Return a text that is different after every change of one of these pools or of its use."""
        checked_workspace, pool_names = checked_name(workspace), tuple(pools)
        return self._digest_cache.get(
            (checked_workspace, *pool_names), lambda: self._compute_digest(checked_workspace, pool_names)
        )

    def _compute_digest(self, workspace: str, pools: Iterable[str]) -> str:
        digest = hashlib.sha256()
        for pool in pools:
            digest.update(checked_name(pool).encode())
            with suppress(NotFound):
                digest.update(repr(self._ledger.get_pool(workspace, pool)).encode())
        return digest.hexdigest()
