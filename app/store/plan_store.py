"""The planner's reads and writes: a snapshot of a pool (`snapshot_reader`), and one Lua command for each step of a plan.

The script of a step checks again whether the step still holds.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from app.domain.clock import Clock, RedisClock
from app.domain.ledger_limits import LedgerLimits
from app.domain.plan_steps import EndHold, EvictOverLimit, PlanStep, Preempt, Publication, ReassignVictim
from app.domain.snapshot import PoolSnapshot
from app.store.connection import RedisClient
from app.store.preemption_parts import encode_part, rest_of_step
from app.store.scripts import ScriptReply, Scripts
from app.store.snapshot_codec import WATCHED_ANEW
from app.store.snapshot_reader import SnapshotReader, SnapshotSizes

PUBLISH_ROWS = 200
"""The most accounts that one call writes."""

MAX_DEADLINES = 50
"""The most deadlines that one call enforces. Each may grant waiters, and every grant takes time."""


class StepResult(NamedTuple):
    """The result of a step: applied, or stale with a reason.

    `has_progressed`: the pool changed by more than the planned steps. `is_unfinished`: the script left work. `rest`: the step
    for the victims that this script left; None if it left none.
    """

    applied: bool
    has_progressed: bool
    is_unfinished: bool
    reason: str
    rest: Preempt | None = None


class PlanStore:
    """The reader of snapshots, and the writer of steps."""

    def __init__(
        self,
        client: RedisClient,
        clock: Clock | None = None,
        limits: LedgerLimits | None = None,
        sizes: SnapshotSizes | None = None,
    ) -> None:
        self._scripts = Scripts(client)
        self._clock = clock or RedisClock()
        self._limits = limits or LedgerLimits()
        self._reader = SnapshotReader(self._clock, sizes or SnapshotSizes())

    def read_snapshot(self, workspace: str, pool: str, *, even_if_idle: bool = False) -> PoolSnapshot | None:
        """Return the pool if it has an open decision (waiters, victims, or it is watched), or with `even_if_idle` in any case.

        Raise UnfinishedWork while a script left work.
        """
        return self._reader.read(self._scripts, workspace, pool, even_if_idle=even_if_idle)

    def write_fair_shares(self, workspace: str, snapshot: PoolSnapshot, publication: Publication) -> StepResult:
        """Write the publication beside the accounts of the pool, unless its rules have changed since. Bounded calls."""
        more = False
        for first in range(0, max(1, len(publication.updates)), PUBLISH_ROWS):
            rows = publication.updates[first : first + PUBLISH_ROWS]
            reply = self._scripts.call(
                "write_fair_shares",
                workspace,
                now=self._clock.now_ms(),
                events_kept=self._limits.events_kept,
                chunk=self._limits.chunk,
                pool=snapshot.pool,
                rows=json.dumps(
                    [(row.account, [word for pair in row.values for word in pair], row.removed_fields) for row in rows]
                ),
                watched=_watched_text(snapshot, publication, last=first + PUBLISH_ROWS >= len(publication.updates)),
                rules=snapshot.rules_version,
            )
            if reply.tag != "published":
                return StepResult(False, False, False, reply.fields["why"])
            more |= reply.fields["more"] == "1"
        return StepResult(True, more, more, "")

    def apply_step(self, workspace: str, snapshot: PoolSnapshot, step: PlanStep) -> StepResult:
        """Apply one step of a plan that was made from this snapshot, if the step still holds.

        A preemption of many victims takes only the first of them; the caller applies the `rest` of the result.
        """
        reply = self._call_step(workspace, snapshot, step)
        if reply.tag != "applied":
            return StepResult(False, False, False, reply.fields["why"])
        more, granted = reply.fields["more"] == "1", reply.fields.get("granted") == "1"
        has_progressed = granted or more or reply.fields.get("partly") == "1"
        rest = None
        if isinstance(step, Preempt) and not granted:
            rest = rest_of_step(snapshot, step, int(reply.fields["begun"]), reply.fields["exited"])
        return StepResult(True, has_progressed, more, "", rest)

    def _call_step(self, workspace: str, snapshot: PoolSnapshot, step: PlanStep) -> ScriptReply:
        pool, frame = snapshot.pool, {"now": self._clock.now_ms(), "events_kept": self._limits.events_kept}
        if isinstance(step, Preempt):
            return self._scripts.call(
                "preempt",
                workspace,
                **frame,
                chunk=self._limits.chunk,
                pool=pool,
                rules=snapshot.rules_version,
                **encode_part(snapshot, step),
            )
        if isinstance(step, EvictOverLimit):
            victims = json.dumps([(victim.request, str(victim.fence), victim.account) for victim in step.victims])
            frame["chunk"] = self._limits.chunk
            return self._scripts.call(
                "evict_over_limit", workspace, **frame, pool=pool, victims=victims, rules=snapshot.rules_version
            )
        if isinstance(step, EndHold):
            return self._scripts.call("end_hold", workspace, **frame, chunk=self._limits.chunk, pool=pool, owner=step.owner)
        owner = step.owner if isinstance(step, ReassignVictim) else ""
        target = {"id": step.request, "owner": owner, "pool": pool}
        return self._scripts.call(
            "reassign_or_reprieve", workspace, **frame, chunk=self._limits.chunk, fence=step.fence, **target
        )

    def enforce_deadlines(self, workspace: str) -> tuple[int, bool]:
        """Enforce the preemption deadlines that have passed, in one bounded call.

        Return how many allocations got the next directive or were forced out, and whether more are due.
        """
        chunk = min(self._limits.chunk, MAX_DEADLINES)
        frame = {"now": self._clock.now_ms(), "events_kept": self._limits.events_kept, "chunk": chunk}
        fields = self._scripts.call("enforce_deadlines", workspace, **frame).fields
        return int(fields["terminated"]) + int(fields["forced"]), fields["more"] == "1"


def _watched_text(snapshot: PoolSnapshot, publication: Publication, *, last: bool) -> str:
    """Return the watched flag to write with one page. Before the last page the pool stays watched, so that the next pass writes
    the rest if the process dies."""
    if not last:
        return WATCHED_ANEW if snapshot.has_void_starvation else "1"
    return "1" if publication.is_watched else "0"
