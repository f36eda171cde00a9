"""The scripts, called by a caller that repeats every call, or that dies before the work is finished."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from app.domain.ledger_limits import MAX_STEPS, LedgerLimits
from app.store.keys import key
from app.store.ledger import Ledger
from app.store.scripts import Arg, ScriptReply, Scripts
from tests.properties.invariants import RETENTION_S, stream_length
from tests.support.small_budget import commands_with_budget
from tests.support.world import World

HOUSEKEEPING = {"clean_up", "resume_unfinished", "give_patience_hold", "enforce_deadlines"}
"""The commands that do the next part of their work when they are called again."""
STEPS = {"preempt", "evict_over_limit", "reassign_or_reprieve", "end_hold"}
"""The steps of a plan: a step that was applied before is answered as stale."""
PASSING = {"more", "created"}
"""The parts of a reply that describe the call and not the request."""
LATER = {"lapses", "victim_hold_pool"}
"""The parts of a reply beside the facts of a request: of a known request, or of one that has just lost its hold."""


class Died(Exception):  # noqa: N818
    """The caller is no more; the first script it called has run, or as many as it lived for."""


class Calls(Scripts):
    """Scripts that can be called twice, or whose caller can die after the first call."""

    def __init__(self, world: World, budget: int) -> None:
        super().__init__(world.client, commands_with_budget(budget))
        self.world, self.twice, self.dying = world, False, False
        self.partly = set[str]()
        """The waiters for which only a part of the planned victims is leaving."""
        self.lives: int | None = None
        """The number of calls until the caller dies; None: it lives."""
        self.after: Callable[[str], None] | None = None
        """The function that is called after every command that changed something, if any."""

    def call(self, command: str, workspace: str, /, **args: Arg) -> ScriptReply:
        """Call the script; a repeated call must reply the same and change nothing."""
        if self.lives == 0 or (self.dying and command == "resume_unfinished"):
            raise Died
        self.lives = self.lives - 1 if self.lives else None
        reply = super().call(command, workspace, **args)
        if self.twice and command not in HOUSEKEEPING:
            before = stream_length(self.world)
            again = super().call(command, workspace, **args)
            same = command in STEPS or _said(again, reply) == _said(reply, reply)
            assert same, f"{command} {args}: first {reply}, then {again}"
            assert reply.fields.get("more") == "1" or stream_length(self.world) == before, f"{command} twice is not once"
        if command == "preempt" and reply.tag == "applied":
            self._note_part(args, reply)
        self.partly -= {waiter for waiter in self.partly if not self._has_hold(waiter)}
        is_between_parts = self.partly and command in ("preempt", "resume_unfinished")  # a decision is judged as a whole
        if self.after and not is_between_parts and "now" in args and reply.tag not in ("stale", "found", "none"):
            self._look(command)
        return reply

    def _note_part(self, args: Mapping[str, Arg], reply: ScriptReply) -> None:
        planned = len(json.loads(str(args["victims"]))) + int(str(args["rest_count"]))
        if int(reply.fields["begun"]) < planned:
            self.partly.add(str(args["waiter"]))
        else:
            self.partly.discard(str(args["waiter"]))

    def _has_hold(self, waiter: str) -> bool:
        return bool(self.world.client.hexists(key("request", self.world.workspace, waiter), "victim_hold_pool"))

    def _look(self, command: str) -> None:
        """Call `after` as a caller that lives."""
        after, lives = self.after, self.lives
        self.after = self.lives = None
        if after:
            after(command)
        self.after, self.lives = after, lives


def _said(reply: ScriptReply, first: ScriptReply) -> tuple[str, dict[str, Any]]:
    fields = {name: value for name, value in reply.fields.items() if name not in PASSING}
    if "outcomes" in fields:
        pairs = zip(fields["outcomes"], first.fields["outcomes"], strict=True)
        fields["outcomes"] = [_outcome(outcome, first_outcome) for outcome, first_outcome in pairs]
    if "request" in fields:
        fields["request"] = _pairs(fields["request"])
    if reply.tag == "left":  # a request that returned to the queue may have moved on
        return reply.tag, {}
    if "pool" in fields:  # a whole pool: its sets come in any order
        return reply.tag, {}
    return reply.tag, fields


def _outcome(outcome: list[Any], first: list[Any]) -> tuple[Any, ...]:
    """Return one outcome; for a request that was new at the first call, only the parts that a repeated call answers as well."""
    tag, *rest = outcome
    if tag == "released" and _status(rest[0]) != "released":  # a request that returned to the queue may have moved on
        return (tag,)
    details = [_pairs(flat) for flat in rest]
    if first[0] == "admitted":
        news = _pairs(first[1])
        details = [{name: value for name, value in flat.items() if name in news} for flat in details if isinstance(flat, dict)]
    return ("admitted" if tag == "known" and first[0] == "admitted" else tag, *details)


def _status(flat: list[str] | str) -> str:
    fields = _pairs(flat)
    return fields.get("status", "") if isinstance(fields, dict) else ""


def _pairs(flat: list[str] | str) -> dict[str, str] | str:
    if isinstance(flat, str):
        return flat
    return {name: value for name, value in zip(flat[::2], flat[1::2], strict=True) if name not in LATER}


def a_world(world: World, chunk: int, budget: int = MAX_STEPS) -> Calls:
    """Give a workspace a ledger of small steps and short memory, with these calls."""
    world.ledger = Ledger(world.client, world.clock, LedgerLimits(chunk=chunk, retention_s=RETENTION_S))
    calls = Calls(world, budget)
    world.ledger._scripts = calls
    return calls
