"""The calls of a ledger: the common arguments of all commands, the unfinished work of commands, and the locks of jobs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, Final

from app.domain.clock import Clock, RedisClock
from app.domain.errors import StoreUnavailable
from app.domain.ledger_limits import LedgerLimits
from app.store.connection import RedisClient
from app.store.reply_outcomes import require_found, require_unused
from app.store.scripts import ScriptReply, Scripts
from app.store.work_resumer import MAX_CALLS, WorkResumer

WAITING_CALLS: Final = 4
"""The most calls of a process that wait for the work of one workspace. Each holds a thread, and the work may never end."""


IDLE_POLICIES: Final = 32
"""The most instances of a template that one call deletes."""


class LedgerCalls:
    """Calls commands on one Redis, with the time and the limits of the ledger."""

    def __init__(
        self,
        client: RedisClient,
        clock: Clock | None = None,
        limits: LedgerLimits | None = None,
        *,
        resume_later: Callable[[str, float], None] | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Create a ledger. `resume_later` takes a workspace with unfinished work, and the seconds of the script that left it.
        Without it, each method resumes the work itself."""
        self._scripts = Scripts(client)
        self._clock = clock or RedisClock()
        self._limits = limits or LedgerLimits()
        self._resumer, self._resume_later = WorkResumer(self, pause), resume_later
        self._waiting, self._waiting_lock = Counter[str](), Lock()

    def resume_unfinished(self, workspace: str) -> bool:
        """Resume unfinished work by one call. Return True if more is left."""
        return bool(self._scripts.call("resume_unfinished", workspace, **self._frame()).fields["more"] == "1")

    def take_job_lock(self, workspace: str, job: str, token: str, ttl_s: int) -> bool:
        """Take the lock of a job for this workspace. Return False if another token has it. It lapses after `ttl_s` seconds."""
        return self._scripts.call("take_job_lock", workspace, job=job, token=token, ttl_ms=ttl_s * 1000).tag == "taken"

    def release_job_lock(self, workspace: str, job: str, token: str) -> None:
        """Release the lock of a periodic job, if this token still has it."""
        self._scripts.call("release_job_lock", workspace, job=job, token=token)

    def _frame(self) -> dict[str, int | None]:
        return {"now": self._clock.now_ms(), "events_kept": self._limits.events_kept, "chunk": self._limits.chunk}

    def _change(self, command: str, workspace: str, **args: Any) -> ScriptReply:
        """Call a command. If a background thread resumes its unfinished work, return at once, else when no work is left."""
        return self._call(command, workspace, self._resume_later or self.resume_after, args)

    def _change_rules(self, command: str, workspace: str, **args: Any) -> ScriptReply:
        """Call a command that changes a pool, a group or a policy. When this returns, its waiters have been checked again,
        unless WAITING_CALLS calls of this process wait for that already."""
        return self._call(command, workspace, self._wait_for_work, args)

    def _change_policies(self, command: str, workspace: str, **args: Any) -> ScriptReply:
        """Call a command like `_change_rules`. If the command needs it, finish unfinished work or delete the idle instances of
        a template, and call the command again."""
        while (reply := self._change_rules(command, workspace, **args)).tag in ("unfinished", "instances"):
            if reply.tag == "unfinished":
                self._require_finished_work(workspace)
            else:
                names = {"pool": args.get("pool"), "template": args.get("component"), **reply.fields}
                self._delete_idle_policies(workspace, names["pool"], names["template"])
        return reply

    def _delete_idle_policies(self, workspace: str, pool: str, template: str) -> None:
        """Delete the instances of a template. Raise Conflict if one of them has queued requests or allocations."""
        count = 1
        while count:
            reply = self._scripts.call("delete_idle_policies", workspace, pool=pool, template=template, count=IDLE_POLICIES)
            if reply.tag == "unfinished":
                self._require_finished_work(workspace)
                continue
            if reply.tag == "in_use":
                require_unused(reply, f"policy {reply.fields['component']} of template {template}")
            count = int(require_found(reply, "policy", f"{template} in pool {pool}").fields["left"])

    def _wait_for_work(self, workspace: str, script_s: float = 0) -> bool:
        """Resume unfinished work until none is left. Return False if so many calls wait that it is left to the background."""
        if not self._resume_later:
            return self.resume_after(workspace, script_s)
        with self._waiting_lock:
            waits = self._waiting[workspace] < WAITING_CALLS
            self._waiting[workspace] += waits
        if not waits:
            self._resume_later(workspace, script_s)
            return False
        try:
            return self.resume_after(workspace, script_s)
        finally:
            with self._waiting_lock:
                self._waiting -= Counter({workspace: 1})  # forget a workspace without waiting calls

    def _require_finished_work(self, workspace: str) -> None:
        """Wait until no work is left; raise StoreUnavailable if many calls wait for that already."""
        if not self._wait_for_work(workspace):
            raise StoreUnavailable("busy", f"Redis is busy with the unfinished work of workspace {workspace}")

    def _call(
        self, command: str, workspace: str, resume: Callable[[str, float], object], args: Mapping[str, Any]
    ) -> ScriptReply:
        start = time.monotonic()
        reply = self._scripts.call(command, workspace, **self._frame(), **args)
        if reply.fields.get("more") == "1":
            resume(workspace, time.monotonic() - start)
        return reply

    def resume_after(self, workspace: str, script_s: float) -> bool:
        """Pause for `script_s`, the seconds of the script that left work, then resume. Return False if more is left."""
        return self._resumer.finish(workspace, script_s=script_s)

    def resume_all_unfinished(self, workspace: str, max_calls: int = MAX_CALLS) -> bool:
        """Resume unfinished work until none is left. Return False if more is left after `max_calls`."""
        return self._resumer.finish(workspace, max_calls)
