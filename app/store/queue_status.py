"""Where somebody stands in the queues, and what the rules that grant say to it: read in one look."""

from __future__ import annotations

import json
from collections.abc import Sequence

from app.domain.clock import Clock, RedisClock
from app.domain.errors import NotFound
from app.domain.explanations import Lack, Numbers, Standing, State
from app.domain.models import Request
from app.store import codec
from app.store.plan_store import waiter
from app.store.scripts import Client, Scripts

POLICIES = 200
"""Policies whose run times one call reads."""


class Standings:
    """Reads what keeps a request from being granted."""

    def __init__(self, client: Client, clock: Clock | None = None) -> None:
        self._scripts = Scripts(client)
        self._clock = clock or RedisClock()

    def of(self, workspace: str, request: str) -> tuple[Request, tuple[Standing, ...]]:
        """A request, and how it stands in each pool in whose queue it is, the most preferred first."""
        reply = self._scripts.call("explain", workspace, now=self._clock.now_ms(), id=request)
        if reply.tag == "not_found":
            raise NotFound("request", request)
        at, rows = reply.fields, reply.fields["pools"]
        places = [text for row in rows for text in row[:2]]
        return codec.request(codec.pairs(at["request"]), at["lapses"], places), tuple(_standing(row) for row in rows)

    def now_ms(self, workspace: str) -> int:
        """The time that deadlines and leases of a workspace go by."""
        return int(self._scripts.call("now", workspace, now=self._clock.now_ms()).fields["now_ms"])

    def run_times(self, workspace: str, pool: str, components: Sequence[str]) -> dict[str, dict[int, int]]:
        """Component → step of run time → how many have run so long in a pool; of those of whom any is known. Bounded calls."""
        found: dict[str, dict[int, int]] = {}
        for first in range(0, len(components), POLICIES):
            some = components[first : first + POLICIES]
            counts = self._scripts.call("run_times", workspace, pool=pool, components=json.dumps(some)).fields["counts"]
            for component, flat in zip(some, counts, strict=True):
                if flat:
                    found[component] = {int(step): int(count) for step, count in codec.pairs(flat).items() if step != "all"}
        return found


def _standing(row: Sequence[Sequence[Sequence[str]]]) -> Standing:
    pool, position, waiting, state, other, bound_by, strict, lacks, numbers, event, rules, asker = row
    return Standing(
        pool=str(pool),
        position=int(str(position)),
        waiting=int(str(waiting)),
        state=State(str(state)),
        other=str(other),
        bound_by=str(bound_by),
        strict=str(strict) == "1",
        lacks=tuple(Lack(kind, account, key, int(needed), int(room)) for kind, account, key, needed, room in lacks),
        numbers=tuple(_numbers(each) for each in numbers),
        event=str(event),
        rules=str(rules),
        asker=waiter([str(word) for word in asker]),
    )


def _numbers(row: Sequence[str]) -> Numbers:
    account, key, limit, reserved, used, fixed, kept = row
    return Numbers(account, key, int(limit) if limit else None, int(reserved), int(used), int(fixed), int(kept))
