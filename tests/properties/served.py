"""No preemption is in vain: the owner of a victim hold fits after all have left, and loses the hold only for a reason."""

from __future__ import annotations

from collections.abc import Iterator

from tests.properties.oracle import NO_OWNER, Model
from tests.properties.snapshot import Snapshot


class Served:
    """The owners of holds, remembered from one step to the next."""

    def __init__(self) -> None:
        self.sure: set[tuple[str, str]] = set()
        """(pool, owner) of holds with no doubtful event since their last preemption."""
        self.partly = set[str]()
        """The owners of holds for which only a part of the planned victims is leaving."""
        self.rules: dict[str, str] = {}
        self.ended = False
        """True if this step ended a hold because nothing can fill it, as the planner may decide."""

    def faults(self, before: Model, now: Model, snapshot: Snapshot, called_back: set[str]) -> Iterator[str]:
        """Yield the faults of the holds in this step."""
        for pool in now.pools:
            rules = snapshot.get("pool", pool).get("rules", "0")
            changed = self.rules.get(pool, rules) != rules
            self.rules[pool] = rules
            yield from self._lost(pool, before, now, changed)
            strays = NO_OWNER in now.leaving[pool].values()
            if changed or strays or pool in called_back:
                self.sure = {pair for pair in self.sure if pair[0] != pool}
            if not changed and not strays:
                self.sure |= {(pool, owner) for owner in now.clearings[pool].keys() - before.clearings.get(pool, {}).keys()}
        self.sure = {(pool, owner) for pool, owner in self.sure if owner in now.clearings.get(pool, {}).keys() - self.partly}
        self.ended = False
        for pool, owner in sorted(self.sure):
            if short := list(now.will_lack(pool, now.requests[owner])):
                yield f"when all have left {pool}, {owner} will still lack {short}"

    def _lost(self, pool: str, before: Model, now: Model, changed: bool) -> Iterator[str]:
        for owner in before.clearings.get(pool, {}).keys() - now.clearings[pool].keys():
            waiter = now.requests.get(owner)
            if not waiter or waiter.status != "queued" or changed or self.ended or now.blocked(pool, waiter) == "limit":
                continue
            if before.requests[owner].status == "queued" and before.requests[owner].preemptions == waiter.preemptions:
                yield f"{owner} waits and has lost its victim hold in {pool}"
