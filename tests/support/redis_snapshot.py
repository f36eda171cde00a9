"""Everything in Redis as of one moment, between two scripts: read by one script of its own, and with no help of the store's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Final, TypeAlias

from app.store.connection import RedisClient
from app.store.keys import prefix

_DUMP: Final = """
local read = {
  hash = function(key) return redis.call('HGETALL', key) end,
  zset = function(key) return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end,
  set = function(key) return redis.call('SMEMBERS', key) end,
  string = function(key) return redis.call('GET', key) end,
  stream = function(key) return redis.call('XRANGE', key, ARGV[1], '+') end,
}
local fields = {unpack(ARGV, 2)}
local function read_request(key)
  local pairs_read = {}
  for index, value in ipairs(redis.call('HMGET', key, unpack(fields))) do
    if value then
      pairs_read[#pairs_read + 1] = fields[index]
      pairs_read[#pairs_read + 1] = value
    end
  end
  return pairs_read
end
local all = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  if #fields > 0 and kind == 'hash' and string.find(key, '}:request:', 1, true) then
    all[#all + 1] = {key, kind, read_request(key)}
  elseif read[kind] then
    all[#all + 1] = {key, kind, read[kind](key)}
  end
end
return all
"""

Record: TypeAlias = Mapping[str, str]
LIVE: Final = ("allocated", "preempting")


def dump(client: RedisClient, *, after: str = "-", fields: Sequence[str] = ()) -> dict[str, Any]:
    """Return every key of the server with what it holds, as plain data; lists are not Poolkeeper's.

    `after` is where the streams are read from, as XRANGE takes it. If `fields` are given, only these are read of each request.
    """
    return {key: _plain(kind, raw) for key, kind, raw in client.eval(_DUMP, 0, after, *fields)}


def _plain(kind: str, raw: Any) -> Any:
    if kind in ("hash", "zset"):
        pairs = dict(zip(raw[::2], raw[1::2], strict=True))
        return pairs if kind == "hash" else {member: float(score) for member, score in pairs.items()}
    if kind == "stream":
        return [(entry, dict(zip(flat[::2], flat[1::2], strict=True))) for entry, flat in raw]
    return set(raw) if kind == "set" else raw


@dataclass(frozen=True)
class Shape:
    """The fields that the requests of a lane have in common."""

    component: str
    fixed: bool
    ask: Mapping[str, int]


def amounts(text: str) -> dict[str, int]:
    """Return `gpu=2,step_run=1` as a mapping."""
    return {key: int(amount) for key, amount in (pair.split("=") for pair in text.split(",") if pair)}


class Snapshot:
    """One workspace as of one moment."""

    def __init__(self, client: RedisClient, workspace: str, *, after: str = "-", fields: Sequence[str] = ()) -> None:
        begin, data = prefix(workspace), dump(client, after=after, fields=fields)
        self.keys = {key.removeprefix(begin): value for key, value in data.items() if key.startswith(begin)}
        self._columns: dict[tuple[str, str], dict[str, int]] = {}
        self._paths: dict[tuple[str, str], list[str]] = {}
        self._of_status: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}

    def hash(self, key: str) -> dict[str, str]:
        """Return a hash; an empty one if it is absent."""
        return dict(self.keys.get(key, {}))

    def zset(self, key: str) -> dict[str, float]:
        """Return a sorted set, in order; an empty one if it is absent."""
        return dict(self.keys.get(key, {}))

    def set(self, key: str) -> set[str]:
        """Return a set; an empty one if it is absent."""
        return set(self.keys.get(key, ()))

    @cached_property
    def requests(self) -> dict[str, dict[str, str]]:
        """Return every request by id."""
        return {name.removeprefix("request:"): value for name, value in self.keys.items() if name.startswith("request:")}

    @cached_property
    def pools(self) -> list[str]:
        """Return the names of the pools."""
        return sorted(self.hash("pools"))

    def of_status(self, *statuses: str) -> dict[str, dict[str, str]]:
        """Return the requests in one of these states."""
        if statuses not in self._of_status:
            self._of_status[statuses] = {name: each for name, each in self.requests.items() if each["status"] in statuses}
        return self._of_status[statuses]

    @cached_property
    def _of_pools(self) -> dict[str, Any]:
        """Return the keys that belong to a pool."""
        return {name: value for name, value in self.keys.items() if name.startswith("pool:")}

    def parts(self, pool: str, kind: str) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the groups or policies of a pool: name and account."""
        begin = f"pool:{pool}:{kind}:"
        yield from ((name.removeprefix(begin), value) for name, value in self._of_pools.items() if name.startswith(begin))

    def path(self, pool: str, component: str) -> list[str]:
        """Return the keys of the accounts that a grant debits: policy, groups, pool. Empty without a policy."""
        if (pool, component) not in self._paths:
            self._paths[pool, component] = self._path(pool, component)
        return self._paths[pool, component]

    def _path(self, pool: str, component: str) -> list[str]:
        path = [f"pool:{pool}:policy:{component}"]
        if path[0] not in self.keys:
            return []
        parent = self.hash(path[0]).get("group")
        while parent:
            path.append(f"pool:{pool}:group:{parent}")
            parent = self.hash(path[-1]).get("parent")
        return [*path, f"pool:{pool}"]

    def column(self, account: str, name: str) -> dict[str, int]:
        """Return one column of an account by resource key, without empty values: `used`, `fixed`, `kept`, `limit`,
        `reserved`."""
        if (account, name) not in self._columns:
            fields = [(field.partition(":"), value) for field, value in self.hash(account).items()]
            of = {key: int(value) for (column, _, key), value in fields if key and column == name}
            self._columns[account, name] = of if name == "limit" else {key: amount for key, amount in of.items() if amount}
        return self._columns[account, name]


def shape(request: Record) -> Shape:
    """Return the fields that a request shares with the others in its lane."""
    return _shape(request["component"], request["preemptible"], request["resources"])


@cache
def _shape(component: str, preemptible: str, resources: str) -> Shape:
    return Shape(component, preemptible == "0", amounts(resources))


def lane(request: Record) -> str:
    """Return the lane of a request."""
    return f"{request['component']}|{'f' if request['preemptible'] == '0' else 'p'}|{request['resources']}"
