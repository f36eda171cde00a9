"""What a page that is looked at all the time needs: short reasons of many at once, and whether anything is different."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock

from app.domain.errors import NotFound
from app.domain.explanations import Verdict
from app.service import sentences
from app.service.checks import checked_name
from app.store.ledger import Ledger
from app.store.standings import Standings

KEPT_S = 0.5
"""How long what was found is told again, to all who look at the same."""
KEPT = 200
"""Places of which it is kept."""


@dataclass(frozen=True, slots=True)
class Short:
    """Why somebody waits in a pool, in short."""

    verdict: Verdict
    sentence: str


class Glances:
    """Looks that cost little."""

    def __init__(self, standings: Standings, ledger: Ledger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._standings, self._ledger, self._monotonic = standings, ledger, monotonic
        self._kept: dict[tuple[str, tuple[str, ...]], tuple[float, str]] = {}
        self._lock = Lock()

    def reasons(self, workspace: str, pool: str, requests: Iterable[str], *, named: bool = True) -> dict[str, Short]:
        """Request → why it waits in this pool, others by name or not; who waits there no more is left out."""
        found = {}
        for request in requests:
            with suppress(NotFound):
                _, standings = self._standings.of(checked_name(workspace), request)
                for one in standings:
                    if one.pool == pool:
                        found[request] = Short(one.verdict, sentences.short(one, named=named))
        return found

    def now_ms(self, workspace: str) -> int:
        """The time by which leases and deadlines are counted, whatever the clock of this machine says."""
        return self._standings.now_ms(checked_name(workspace))

    def digest(self, workspace: str, pools: Iterable[str]) -> str:
        """Another text whenever these pools are other than they were, or what is in them."""
        at = checked_name(workspace), tuple(pools)
        with self._lock:
            until, known = self._kept.get(at, (0.0, ""))
            if self._monotonic() < until:
                return known
            known = self._digested(*at)
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[at] = self._monotonic() + KEPT_S, known
            return known

    def _digested(self, workspace: str, pools: Iterable[str]) -> str:
        told = hashlib.sha256()
        for pool in pools:
            told.update(checked_name(pool).encode())
            with suppress(NotFound):
                told.update(repr(self._ledger.view_pool(workspace, pool)).encode())
        return told.hexdigest()
