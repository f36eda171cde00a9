"""All Redis keys: name, shape, type and meaning. Python and Lua build keys from this list only.

The channels are in the list too, because their names are built in the same way; Redis stores nothing under them.

A key is `pk:{workspace}:` and the shape. The braces are Redis Cluster's hash tag: one workspace is one slot, and every script
is atomic over all its pools. Names cannot contain a colon, a brace or a bar, so no two keys can be equal.

- A *component* is written `type/name`.
- A *lane* is all waiters with one shape: `type/name|p|gpu=2,step_run=1` (`p` preemptible, `f` fixed). An ending such as
  `|pools=a,b` names the other parts of the shape.
- A *constraint* blocks a lane, which is parked on it: `limit|pool|gpu`, `limit|policy:type/name|gpu`, `victim_held|pool|gpu`
  (units of victim holds), `patience_held|pool|gpu` (units of the patience hold), `fixed|policy:type/name|gpu`.
- A *slot* is the parking place of a lane: a constraint, or with fair share a constraint and the policy:
  `limit|pool|gpu@type/name`.
- A *node* is a place in the tree over the needs of a slot: `3.1a` is above all needs with three hexadecimal digits that begin
  with `1a`, `.` above all.
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
        """Return the names of the parameters of the shape, in order."""
        return tuple(re.findall(r"<(\w+)>", self.shape))

    def of(self, workspace: str, *parts: str) -> str:
        """Return the key in a workspace, with its parameters filled in."""
        rest = iter(parts)
        return prefix(workspace) + re.sub(r"<\w+>", lambda _: next(rest), self.shape)


def prefix(workspace: str) -> str:
    """Return the prefix of all keys of a workspace; the only place where the hash tag is written."""
    return f"pk:{{{workspace}}}:"


KEYS: dict[str, Key] = {
    key.name: key
    for key in (
        Key(
            "meta",
            "meta",
            "hash",
            "last `seq` and `fence`, id of the `master`, settings and limits, numbers of policies, templates and rule changes, "
            "bytes of kept bodies",
        ),
        Key("pools", "pools", "hash", "pool → description"),
        Key("templates", "templates", "hash", "policy template (`type/prefix*`) → number of pools that have it"),
        Key(
            "template_checks",
            "template_checks",
            "zset",
            "`<pool> <template>` of templates with instances, by the time (ms) of the next check for idle ones",
        ),
        Key("unfinished", "unfinished", "set", "pools with unfinished work, which the next call resumes"),
        Key("orphaned_lanes", "orphaned_lanes", "zset", "lanes that fit no pool any more; their waiters are being rejected"),
        Key("lanes", "lanes", "set", "lanes that have waiters"),
        Key(
            "limited_waiting",
            "limited:<subject>:waiting",
            "zset",
            "waiters of a token or component with limits, each after the name of its lane",
        ),
        Key("limited_lanes", "limited:<subject>:lanes", "set", "lanes of the waiters of a token or component with limits"),
        Key(
            "limited_subjects",
            "limited_subjects",
            "set",
            "tokens (`token/<id>`) and components (`component/<type>/<name>`) whose limits count waiters",
        ),
        Key("requests", "requests", "zset", "every request, by number of submission"),
        Key(
            "waiting",
            "waiting",
            "zset",
            "queued requests, by the time (ms) at which they expire without a poll; 2^53-1 is never",
        ),
        Key("leases", "leases", "zset", "allocations, by the time (ms) at which their lease ends; 2^53-1 is never"),
        Key(
            "preemption_deadlines",
            "preemption_deadlines",
            "zset",
            "preempting allocations, by the time (ms) at which their step ends; orphaned victims are not in it",
        ),
        Key("ended", "ended", "zset", "requests in a final state, by the time (ms) at which they ended"),
        Key(
            "rejected", "rejected", "zset", "rejected requests, by the time (ms) at which they ended; they are kept for an hour"
        ),
        Key("events", "events", "stream", "one entry per transition; the oldest are removed"),
        Key("changed", "changed:<id>", "channel", "the new state of a request, at each transition"),
        Key("nudge", "nudge", "string", "a decision may be needed (`pending`, `sent`, `missed`, `suppressed`); expires"),
        Key("nudged", "nudged", "channel", "a message if a decision may be needed, so that a worker reconciles at once"),
        Key("counters", "counters", "hash", "counters of the metrics: preemptions, checkpoints, waits, reconciles"),
        Key("request", "request:<id>", "hash", "a request: its spec, its state, its events"),
        Key("idempotency", "idempotency:<key>", "string", "request id and body digest of the first call with this key"),
        Key("operation", "operation:<id>", "string", "the reply of a change of a pool or token, for a retry"),
        Key("task", "task:<task>", "hash", "a parked task: its message, its spec, its present request"),
        Key("delayed", "delayed", "zset", "tasks without a request yet, by the time (ms) at which they join the queue"),
        Key(
            "outbox",
            "outbox",
            "zset",
            "tasks to send to their broker (granted, or never to run), by the time (ms) at which they are due",
        ),
        Key(
            "unstarted",
            "unstarted",
            "zset",
            "tasks sent and not yet started or acknowledged, by the time (ms) of the next check",
        ),
        Key("outbox_ready", "outbox_ready", "channel", "a message if the outbox has a task to send"),
        Key("job_lock", "lock:<job>", "string", "token of the worker that runs this periodic job in the workspace"),
        Key(
            "availability",
            "availability",
            "hash",
            "only in `_`: the time (ms) since which the API answers without a gap; the last record",
        ),
        Key("tokens", "tokens", "hash", "only in `_`: digest of a secret → name, role, workspaces and expiry of the token"),
        Key(
            "rate",
            "rate:<token>",
            "string",
            "only in `_`: the time (ms) up to which the rate of a token is used up, and the time (ms) of the write",
        ),
        Key("component_pools", "component:<component>:pools", "zset", "pools in which the component has a policy, by priority"),
        Key("component_lanes", "component:<component>:lanes", "zset", "lanes of the component that have waiters, by name"),
        Key("lane", "lane:<lane>", "zset", "waiters of one shape, by lane score (class and number of submission)"),
        Key("lane_walltimes", "lane:<lane>:walltimes", "zset", "waiters of the lane with a walltime, by that (s)"),
        Key("pool", "pool:<pool>", "hash", "the account of the pool (`used:gpu`, `limit:gpu` …) and its settings"),
        Key("pool_queue", "pool:<pool>:queue", "zset", "waiters, by rank score: the first is the head"),
        Key(
            "pool_policy_queue",
            "pool:<pool>:queue:<component>",
            "zset",
            "fair share: waiters of a policy, by lane score (class and number of submission)",
        ),
        Key("pool_allocations", "pool:<pool>:allocations", "zset", "allocations, by fence: the order of grant"),
        Key(
            "pool_allocation_records",
            "pool:<pool>:allocation_records",
            "hash",
            "allocation → the values that the planner reads",
        ),
        Key(
            "pool_victims",
            "pool:<pool>:victims",
            "hash",
            "preempting allocation → owner of its hold; `-` if orphaned, `!` because of a limit",
        ),
        Key(
            "pool_changes",
            "pool:<pool>:changes",
            "zset",
            "allocations, groups and policies that changed without an event, by number of the change; the newest 1,000",
        ),
        Key(
            "pool_preemptions",
            "pool:<pool>:preemptions",
            "zset",
            "preemptions of the last minute, by the time (ms) of the decision",
        ),
        Key(
            "pool_walltime_ends", "pool:<pool>:walltime_ends", "zset", "allocations with a walltime, by their promised end (ms)"
        ),
        Key(
            "pool_run_times",
            "pool:<pool>:run_times:<component>",
            "hash",
            "run times of a policy: `<step>` → count, `all` → count",
        ),
        Key(
            "pool_usage_history",
            "pool:<pool>:usage_history",
            "list",
            "one line a minute: units used per policy, and the most since the line before",
        ),
        Key("pool_groups", "pool:<pool>:groups", "set", "names of the groups"),
        Key("pool_policies", "pool:<pool>:policies", "set", "components with a policy"),
        Key(
            "pool_instances",
            "pool:<pool>:instances:<template>",
            "zset",
            "instances of a template, by the time (ms) of their last request or release",
        ),
        Key(
            "pool_template_updates",
            "pool:<pool>:template_updates:<template>",
            "zset",
            "unfinished work: instances of a changed template that are not changed yet",
        ),
        Key("pool_lanes", "pool:<pool>:lanes", "zset", "lanes that may be granted here, by queue score of their head"),
        Key(
            "pool_policy_lanes",
            "pool:<pool>:lanes:<component>",
            "zset",
            "fair share: lanes of a policy, by class and age of their head",
        ),
        Key("pool_satisfaction", "pool:<pool>:satisfaction", "zset", "fair share: policies, by satisfaction ratio"),
        Key("pool_in_share", "pool:<pool>:in_share", "set", "lanes that fit the unused share of their policy"),
        Key("pool_strict_line", "pool:<pool>:strict_line", "zset", "strict queueing: lanes under no limit, by queue score"),
        Key(
            "pool_parked", "pool:<pool>:parked", "hash", "lane → its slot, its need, and the time (ms) since which it is parked"
        ),
        Key("pool_parking_counts", "pool:<pool>:parking_counts", "hash", "constraint → number of lanes parked on it"),
        Key(
            "pool_parking_needs",
            "pool:<pool>:parking_needs:<slot>",
            "zset",
            "fair share: policies with lanes parked on a constraint, by their smallest need",
        ),
        Key(
            "pool_parking", "pool:<pool>:parking:<slot>|<need>", "zset", "lanes parked in a slot with this need, by queue score"
        ),
        Key(
            "pool_parking_tree",
            "pool:<pool>:parking_tree:<slot>|<node>",
            "zset",
            "the next digits of needs in a slot, by the least queue score below them",
        ),
        Key(
            "pool_blocked_since",
            "pool:<pool>:blocked_since",
            "zset",
            "lanes that capacity blocks, by the time (ms) since which it does",
        ),
        Key(
            "pool_lane_amounts",
            "pool:<pool>:lane_amounts:<side>|<component>|<kind>|<key>",
            "zset",
            "lanes of a policy whose amount of a key `fits` its unused share or `exceeds` it, by the amount",
        ),
        Key(
            "pool_holds", "pool:<pool>:holds", "hash", "owner of a hold → kind of the hold, and the time since which it exists"
        ),
        Key(
            "hold",
            "pool:<pool>:hold:<id>",
            "hash",
            "units that the victims of a hold still have to free, and units that they have freed",
        ),
        Key("hold_victims", "pool:<pool>:hold_victims:<id>", "set", "victims of a hold"),
        Key("pool_unfinished", "pool:<pool>:unfinished", "hash", "unfinished work of this pool → its progress"),
        Key(
            "pool_queue_syncs",
            "pool:<pool>:queue_syncs",
            "zset",
            "unfinished work: lanes whose waiters are not yet in step with the queue, by the lane score of the next one",
        ),
        Key("group", "pool:<pool>:group:<group>", "hash", "the account of a group"),
        Key("policy", "pool:<pool>:policy:<component>", "hash", "the account of a policy: priority, group, settings"),
    )
}


def key(name: str, workspace: str, *parts: str) -> str:
    """Return the key of that name in a workspace."""
    return KEYS[name].of(workspace, *parts)


OWN = "_"
"""The workspace of the service's own records. No other workspace can have this name: names begin with a letter or digit."""

WORKSPACES = "pk:workspaces"
"""The key of the set of all workspaces; it belongs to no workspace."""

BARRIER = "barrier"
"""The key that a connection writes before a WAIT, for replicas to confirm. It expires after the WAIT."""

SCHEMA_NUMBER = "pk:schema"
"""The key of the schema number of this Redis (`schema.py`); it belongs to no workspace."""
