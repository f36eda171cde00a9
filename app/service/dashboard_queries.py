"""What a page that is looked at all the time needs: short reasons of many, whether anything is new, and the past."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

from app.domain.errors import NotFound
from app.domain.explanations import WaitReason
from app.domain.usage_history import UsageHistory
from app.service import explain_text
from app.service.usage_history import UsageHistories
from app.service.validation import checked_name
from app.store.ledger import Ledger
from app.store.queue_status import QueueStatusStore

KEPT_S = 0.5
"""How long what was found is told again, to all who look at the same."""
KEPT = 200
"""Places of which it is kept."""
HISTORY_S = 10.0
"""The same of what was noted of a pool: of a hundred policies it takes a third of a second, and grows by a note a minute."""
HISTORIES = 20
"""Pools of which that is kept: one may take two megabytes."""

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class ShortReason:
    """Why somebody waits in a pool, in short."""

    verdict: WaitReason
    sentence: str


class Kept(Generic[Found]):
    """What was found a moment ago, for all who look at the same; one looks, and the others wait for it."""

    def __init__(self, for_s: float, most: int, monotonic: Callable[[], float]) -> None:
        self._for_s, self._most, self._monotonic = for_s, most, monotonic
        self._found: dict[tuple[str, ...], tuple[float, Found]] = {}
        self._lock = Lock()

    def of(self, at: tuple[str, ...], find: Callable[[], Found]) -> Found:
        """What is found there; nothing that is empty is kept."""
        with self._lock:
            if at in self._found and self._monotonic() < self._found[at][0]:
                return self._found[at][1]
            found = find()
            if len(self._found) >= self._most:
                self._found.clear()
            if found:
                self._found[at] = self._monotonic() + self._for_s, found
            return found


class DashboardQueries:
    """Looks that cost little."""

    def __init__(
        self, standings: QueueStatusStore, ledger: Ledger, histories: UsageHistories, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._standings, self._ledger, self._histories = standings, ledger, histories
        self._digests = Kept[str](KEPT_S, KEPT, monotonic)
        self._pasts = Kept[UsageHistory](HISTORY_S, HISTORIES, monotonic)

    def list_reasons(self, workspace: str, pool: str, requests: Iterable[str], *, named: bool = True) -> dict[str, ShortReason]:
        """Request → why it waits in this pool, others by name or not; who waits there no more is left out."""
        found = {}
        for request in requests:
            with suppress(NotFound):
                _, standings = self._standings.list_statuses(checked_name(workspace), request)
                for one in standings:
                    if one.pool == pool:
                        found[request] = ShortReason(one.wait_reason, explain_text.describe_briefly(one, named=named))
        return found

    def read_clock(self, workspace: str) -> int:
        """The time by which leases and deadlines are counted, whatever the clock of this machine says."""
        return self._standings.read_clock(checked_name(workspace))

    def get_history(self, workspace: str, pool: str) -> UsageHistory:
        """The last hours of a pool, some seconds late at most."""
        at = checked_name(workspace), checked_name(pool)
        return self._pasts.of(at, lambda: self._histories.get(*at))

    def get_digest(self, workspace: str, pools: Iterable[str]) -> str:
        """Another text whenever these pools are other than they were, or what is in them."""
        at, named = checked_name(workspace), tuple(pools)
        return self._digests.of((at, *named), lambda: self._digested(at, named))

    def _digested(self, workspace: str, pools: Iterable[str]) -> str:
        told = hashlib.sha256()
        for pool in pools:
            told.update(checked_name(pool).encode())
            with suppress(NotFound):
                told.update(repr(self._ledger.get_pool(workspace, pool)).encode())
        return told.hexdigest()
