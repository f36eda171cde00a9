"""Every Redis key there is: name, shape, type and meaning. Python and Lua both build keys from this list and nothing else.

The channels are among them: their names are built the same way, though nothing is kept under them.

A key is `pk:{workspace}:` and the shape; the braces are Redis Cluster's hash tag, so that one workspace is one slot and every
script is atomic over all its pools. Names cannot hold a colon, a brace or a bar, so no two keys can meet.

- a *component* is written `type/name`
- a *lane* is all that wait with one shape: `type/name|p|gpu=2,step_run=1` (`p` preemptible, `f` fixed)
- a *constraint* is what a lane is parked on until it is met: `limit|pool|gpu`, `limit|policy:type/name|gpu`,
  `cleared|pool|gpu` (kept by holds with victims), `held|pool|gpu` (by that of patience), `fixed|policy:type/name|gpu`
- with fair share the lanes of each policy are parked apart, on `limit|pool|gpu@type/name`; the needs of the constraint itself
  are then the policies with somebody there, by the smallest need of each
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """One kind of key."""

    name: str
    shape: str
    type: str
    meaning: str

    @property
    def parameters(self) -> tuple[str, ...]:
        """What the shape has to be given, in order."""
        return tuple(re.findall(r"<(\w+)>", self.shape))

    def of(self, workspace: str, *parts: str) -> str:
        """The key itself."""
        rest = iter(parts)
        return prefix(workspace) + re.sub(r"<\w+>", lambda _: next(rest), self.shape)


def prefix(workspace: str) -> str:
    """What every key of a workspace begins with; the one place where the hash tag is written."""
    return f"pk:{{{workspace}}}:"


KEYS: dict[str, Key] = {
    key.name: key
    for key in (
        Key("meta", "meta", "hash", "counters `seq` and `fence`, and the settings of the workspace"),
        Key("pools", "pools", "hash", "the pools: name → description"),
        Key("todo", "todo", "set", "pools with work a bounded script left for the next one"),
        Key("orphans", "orphans", "set", "lanes no pool takes any more, whose members are being rejected"),
        Key("requests", "requests", "zset", "every request kept, by number of submission"),
        Key("waiting", "waiting", "zset", "queued requests by the time (ms) they expire unless polled; 2^53-1 for never"),
        Key("live", "live", "zset", "allocations by the time (ms) their lease lapses; 2^53-1 for never"),
        Key("leaving", "leaving", "zset", "who has to leave, by when (ms) its present step ends; not those nobody needs gone"),
        Key("ended", "ended", "zset", "requests in a final state by the time (ms) they ended"),
        Key("events", "events", "stream", "one entry per transition, capped"),
        Key("changed", "changed:<id>", "channel", "each transition of a request is said here as its new state, and not kept"),
        Key("nudge", "nudge", "string", "a decision may be needed (`asked`, `sent`, `missed`, `hushed`); lapses"),
        Key("nudged", "nudged", "channel", "said when a decision may be needed, so that a worker looks at once"),
        Key("counts", "counts", "hash", "what the metrics count: preemptions, checkpoints, looks of the workers"),
        Key("request", "request:<id>", "hash", "the ask, as it came, and where it stands"),
        Key("idempotency", "idempotency:<key>", "string", "request id and digest of the body first sent with this key"),
        Key("operation", "operation:<id>", "string", "what a change of a pool or token answered, to say it again to a retry"),
        Key("task", "task:<task>", "hash", "a task that is kept: its message, its ask, the request it has now"),
        Key("delayed", "delayed", "zset", "tasks that wait for their time (ms), and have no request yet"),
        Key("outbox", "outbox", "zset", "tasks to be sent to their broker, by when (ms): as granted, or never to run"),
        Key(
            "unstarted",
            "unstarted",
            "zset",
            "tasks sent that nobody has begun, or heard to be over, by when (ms) to look",
        ),
        Key("posted", "posted", "channel", "said when there is something for the outbox to send"),
        Key("lease", "lease:<task>", "string", "who does a task of the housekeeping in this workspace just now"),
        Key("tokens", "tokens", "hash", "only in `_`: digest of a secret → whose token it is, what it may do, until when"),
        Key("rate", "rate:<token>", "string", "only in `_`: the time (ms) up to which a token's rate is used up"),
        Key("component", "component:<component>", "zset", "pools the component has a policy in, by falling priority"),
        Key("component_lanes", "component:<component>:lanes", "set", "the component's lanes with somebody in them"),
        Key("lane", "lane:<lane>", "zset", "those who wait with one shape, by class and number of submission"),
        Key("lane_walltimes", "lane:<lane>:walltimes", "zset", "those of the lane that promised a walltime, by it (s)"),
        Key("pool", "pool:<pool>", "hash", "the pool's account (`used:gpu`, `limit:gpu` …) and its settings"),
        Key("pool_queue", "pool:<pool>:queue", "zset", "waiting requests by rank and age: the head first"),
        Key("pool_active", "pool:<pool>:active", "zset", "allocations by fence, which is the order of grant"),
        Key("pool_held", "pool:<pool>:held", "hash", "allocation → what a decision has to know of it, in one line"),
        Key("pool_leaving", "pool:<pool>:leaving", "hash", "who has to leave → for whom; `-` for nobody any more"),
        Key("pool_stops", "pool:<pool>:stops", "zset", "preemptions of the last minute by when (ms) they were decided"),
        Key("pool_ends", "pool:<pool>:ends", "zset", "allocations with a walltime by when (ms) they promised to end"),
        Key("pool_runs", "pool:<pool>:runs:<component>", "hash", "a policy's run times: `<step>` → how many, `all` → how many"),
        Key("pool_history", "pool:<pool>:history", "list", "how much was used, and by whom, a line each minute"),
        Key("pool_groups", "pool:<pool>:groups", "set", "names of the groups"),
        Key("pool_policies", "pool:<pool>:policies", "set", "components with a policy"),
        Key("pool_lanes", "pool:<pool>:lanes", "zset", "lanes that may be granted here, by the place of their head"),
        Key("pool_satisfaction", "pool:<pool>:satisfaction", "zset", "fair share: policies by how much of theirs they have"),
        Key("pool_inshare", "pool:<pool>:inshare", "set", "lanes that fit their policy's unused share"),
        Key("pool_line", "pool:<pool>:line", "zset", "strict queueing: lanes not blocked by a limit, by place"),
        Key("pool_parked", "pool:<pool>:parked", "hash", "lane → what it waits for: constraint, need, since when"),
        Key("pool_parks", "pool:<pool>:parks", "hash", "constraint → number of lanes parked on it"),
        Key("pool_needs", "pool:<pool>:needs:<constraint>", "zset", "the different needs of those parked on a constraint"),
        Key("pool_park", "pool:<pool>:park:<constraint>|<need>", "zset", "lanes parked on it for this need, by place"),
        Key("pool_share", "pool:<pool>:share:<component>|<kind>|<key>", "zset", "a policy's lanes by what they ask of a key"),
        Key("pool_holds", "pool:<pool>:holds", "hash", "who has a hold → its kind and since when"),
        Key("hold", "pool:<pool>:hold:<id>", "hash", "what its victims still bring and have brought"),
        Key("pool_todo", "pool:<pool>:todo", "hash", "what is unfinished in this pool → how far it is"),
        Key("group", "pool:<pool>:group:<group>", "hash", "a group's account"),
        Key("policy", "pool:<pool>:policy:<component>", "hash", "a policy's account, priority, group and settings"),
    )
}


def key(name: str, workspace: str, *parts: str) -> str:
    """The key of that name in a workspace."""
    return KEYS[name].of(workspace, *parts)


OWN = "_"
"""Where the service's own records are kept, as in a workspace. None can be called so: names begin with a letter or digit."""

WORKSPACES = "pk:workspaces"
"""The one key of no workspace: a set of their names, so that the housekeeping finds them all."""
