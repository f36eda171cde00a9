"""All data of a workspace in Redis at one moment, with the kind of every key.

This module only sorts and names the data; `oracle` and `structures` judge them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from app.store.connection import RedisClient
from app.store.keys import KEYS, prefix

Value = Any
"""A hash or sorted set as a dict, a set as a set, a string as a text."""

_PARTS = {"lane": r"[^:]+", "slot": r".+", "key": r".+"}
"""The patterns of key parts that are more than a word without colon and bar."""


def _pattern(shape: str) -> re.Pattern[str]:
    words = re.split(r"<(\w+)>", shape)
    text = [_PARTS.get(word, r"[^:|]+").join("()") if index % 2 else re.escape(word) for index, word in enumerate(words)]
    return re.compile("".join(text))


_KINDS = {name: _pattern(key.shape) for name, key in KEYS.items()}


@cache
def kind_of(key: str) -> tuple[str, tuple[str, ...]]:
    """Return the kind of a key and its parts; raise AssertionError if it matches none or two."""
    matches = [(name, match.groups()) for name, pattern in _KINDS.items() if (match := pattern.fullmatch(key))]
    assert len(matches) == 1, f"the key {key} is of kinds {matches}"
    return matches[0]


@dataclass(frozen=True)
class Snapshot:
    """One workspace: (kind, parts) → value, and the time it was read at."""

    now_ms: int
    data: dict[tuple[str, ...], Value]

    def get(self, kind: str, *parts: str) -> Value:
        """Return the value of a key; empty if it is absent."""
        empty: dict[str, Value] = {"set": set(), "string": "", "list": [], "stream": []}
        return self.data.get((kind, *parts), empty.get(KEYS[kind].type, {}))

    def of(self, kind: str) -> Iterator[tuple[tuple[str, ...], Value]]:
        """Yield the parts and the value of every key of a kind."""
        name = KEYS[kind].name
        return ((key[1:], value) for key, value in self.data.items() if key[0] == name)

    def unfinished(self) -> bool:
        """True if a bounded script left work for the next one."""
        marks = ("reviewing", "unsettled")
        pools = any(mark in pool for _, pool in self.of("pool") for mark in marks)
        of_pools = any(self.of("pool_unfinished")) or any(self.of("pool_queue_syncs"))
        return bool(pools or self.get("unfinished") or self.get("orphaned_lanes") or of_pools)


def take(client: RedisClient, workspace: str, now_ms: int) -> Snapshot:
    """Read it all in one step, but for the stream of events, which `events_since` reads."""
    start = prefix(workspace)
    data: dict[tuple[str, ...], Value] = {}
    for key, value in client.eval(_READ, 0, start):
        kind, parts = kind_of(key[len(start) :])
        data[kind, *parts] = _plain(KEYS[kind].type, value)
    for pool in [parts[1] for parts in data if parts[0] == "pool_unfinished"]:
        _orphan_all(data, pool)
    return Snapshot(now_ms, data)


def _orphan_all(data: dict[tuple[str, ...], Value], pool: str) -> None:
    """Show the victims of closed holds as orphaned: they count as such, and the next scripts make them so."""
    fields, owners = data["pool", pool], data.get(("pool_victims", pool), {})
    deadlines = data.get(("preemption_deadlines",), {})
    items = [field.partition(" ") for field in data["pool_unfinished", pool]]
    closed_holds = {owner for kind, _, owner in items if kind == "orphaning"}
    assert bool(closed_holds) == (fields.pop("orphaning", None) is not None), f"{pool} has {fields}, unfinished {closed_holds}"
    for closed in closed_holds:
        victims = {id_ for id_, owner in owners.items() if owner == closed}
        assert victims == data.pop(("hold_victims", pool, closed), set()), f"{pool}: {victims} leave for {closed}"
        assert not victims or victims <= deadlines.keys(), f"{victims} have no deadline"
        owners.update(dict.fromkeys(victims, "-"))
        for id_ in victims:
            del deadlines[id_]
        if victims:
            fields["orphaned_victims"] = str(int(fields.get("orphaned_victims", 0)) + len(victims))
    if not deadlines:
        data.pop(("preemption_deadlines",), None)


_READ = """
local read = {
  hash = function(key) return redis.call('HGETALL', key) end,
  zset = function(key) return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end,
  set = function(key) return redis.call('SMEMBERS', key) end,
  list = function(key) return redis.call('LRANGE', key, 0, -1) end,
  string = function(key) return redis.call('GET', key) end,
  stream = function(key) return redis.call('XLEN', key) end,
}
local keys = redis.call('KEYS', ARGV[1] .. '*')
table.sort(keys)
local all = {}
for _, key in ipairs(keys) do
  all[#all + 1] = {key, read[redis.call('TYPE', key).ok](key)}
end
return all
"""


def _plain(redis_type: str, value: Any) -> Value:
    if redis_type == "set":
        return set(value)
    if redis_type == "hash":
        return dict(zip(value[::2], value[1::2], strict=True))
    if redis_type != "zset":
        return value
    scores = {member: float(score) for member, score in zip(value[::2], value[1::2], strict=True)}
    assert all(score.is_integer() for score in scores.values()), f"a score is no whole number: {value}"
    return {member: int(score) for member, score in scores.items()}


def events_since(client: RedisClient, workspace: str, last: str) -> list[tuple[str, dict[str, str]]]:
    """Return the entries of the workspace's stream after this one."""
    entries: Any = client.xrange(prefix(workspace) + "events", min=f"({last}")
    return [(entry, dict(fields)) for entry, fields in entries]


def amounts(text: str) -> dict[str, int]:
    """Return `gpu=2,step_run=1` as a mapping."""
    pairs = (pair.split("=") for pair in text.split(","))
    return {key: int(count) for key, count in pairs}


def columns(account: dict[str, str], name: str) -> dict[str, int]:
    """Return one column of an account's hash by key, without zeros."""
    amounts = {field[len(name) + 1 :]: int(value) for field, value in account.items() if field.startswith(name + ":")}
    return {key: value for key, value in amounts.items() if value}
