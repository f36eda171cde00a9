"""The wait slots of one process: the bounds of its long polls, streams and large bodies, in all and for one token.

Each wait holds a thread, so wait slots are counted. A token has a share of each kind of slots, so that its clients cannot take
all slots. The streams of dashboards have slots of their own. A call with a large body takes a slot as well: the client may send
slowly, and its data stays in memory until the call is answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Literal, TypeAlias, get_args

SlotKind: TypeAlias = Literal["poll", "stream", "dashboard", "body"]
_KIND_TEXTS: dict[SlotKind, str] = {
    "poll": "long polls",
    "stream": "event streams",
    "dashboard": "open pages",
    "body": "large bodies",
}


class TooManyWaiters(Exception):  # noqa: N818 - a state of the world
    """All wait slots of this process are taken, or a shared computation takes too long. A later try may succeed."""


class TokenShareUsed(TooManyWaiters):
    """The token holds its whole share of this process. Another try after `retry_after_s` may succeed."""

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


LEAST_SHARES: dict[SlotKind, int] = {"poll": 1, "stream": 1, "dashboard": 8, "body": 1}
"""The smallest share of a token, in slots. A closed page of the dashboard keeps its slot for two seconds."""


class WaitSlots:
    """The wait slots of one process. Streams take slots of `polls`, at most `streams` of them.

    The share does not apply to a caller without a token (None): without tokens all callers are on this machine.
    """

    def __init__(self, polls: int, streams: int, dashboards: int = 1, bodies: int = 1, share_percent: int = 100) -> None:
        self.capacities: dict[SlotKind, int] = {"poll": polls, "stream": streams, "dashboard": dashboards, "body": bodies}
        self.token_shares = {
            kind: max(min(LEAST_SHARES[kind], capacity), capacity * share_percent // 100)
            for kind, capacity in self.capacities.items()
        }
        self._used: Counter[SlotKind] = Counter()
        self._refused: Counter[SlotKind] = Counter()
        self._used_by_token: Counter[tuple[SlotKind, str]] = Counter()
        self._lock = Lock()
        self.on_change: Callable[[SlotKind, int], None] = lambda kind, change: None
        """A function that is called with 1 for each slot taken, and with -1 for each slot freed."""

    @contextmanager
    def slot(self, kind: SlotKind, token: str | None = None) -> Iterator[bool]:
        """Yield True with a slot taken until the context ends, or False if there is none."""
        acquired = self._acquire(kind, token)
        try:
            yield acquired
        finally:
            if acquired:
                self._release(kind, token)

    @contextmanager
    def required_slot(self, kind: SlotKind, token: str | None = None) -> Iterator[None]:
        """Hold a slot until the context ends; raise TooManyWaiters if there is none."""
        with self.slot(kind, token) as acquired:
            if not acquired:
                raise self.refusal(kind, token)
            yield

    def used(self) -> dict[SlotKind, int]:
        """Return the number of slots in use, by kind."""
        with self._lock:
            return {kind: self._used[kind] for kind in get_args(SlotKind)}

    def refused(self) -> dict[SlotKind, int]:
        """Return the number of callers that got no slot so far, by kind."""
        with self._lock:
            return {kind: self._refused[kind] for kind in get_args(SlotKind)}

    def refusal(self, kind: SlotKind, token: str | None = None) -> TooManyWaiters:
        """Return the refusal for a caller that got no slot."""
        held, limit = self._used_by_token[kind, token or ""], self.token_shares[kind]
        if token is not None and held >= limit:
            return TokenShareUsed(
                f"this token holds {held} of the {limit} {_KIND_TEXTS[kind]} that a token may hold in a process"
            )
        return TooManyWaiters(f"all {self.capacities[kind]} {_KIND_TEXTS[kind]} that a process serves at a time are taken")

    def _acquire(self, kind: SlotKind, token: str | None) -> bool:
        with self._lock:
            free = self._is_free(kind) and (token is None or self._used_by_token[kind, token] < self.token_shares[kind])
            (self._used if free else self._refused)[kind] += 1
            if free and token is not None:
                self._used_by_token[kind, token] += 1
        if free:
            self.on_change(kind, 1)
        return free

    def _is_free(self, kind: SlotKind) -> bool:
        if kind in ("poll", "stream") and self._used["poll"] + self._used["stream"] >= self.capacities["poll"]:
            return False
        return self._used[kind] < self.capacities[kind]

    def _release(self, kind: SlotKind, token: str | None) -> None:
        with self._lock:
            self._used[kind] -= 1
            if token is not None:
                self._used_by_token[kind, token] -= 1
                if not self._used_by_token[kind, token]:
                    del self._used_by_token[kind, token]
        self.on_change(kind, -1)
