"""A fake Redis in this process, as strict about Lua as a real one."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

import fakeredis
from fakeredis._socket import _base
from fakeredis.commands_mixins import scripting_mixin

from app.store.connection import RedisClient

_STRICT = """
for _, name in ipairs({'os', 'io', 'package', 'require', 'module', 'dofile', 'loadfile', 'print', 'newproxy', 'python'}) do
  rawset(_G, name, nil)
end
setmetatable(_G, {
  __index = function(_, name) error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2) end,
  __newindex = function(_, name) error("Attempt to modify a readonly table: global '" .. tostring(name) .. "'", 2) end,
})
"""
"""As in Redis, a global that does not exist is an error, to read and to set, and what a script must not reach is gone.

(`debug` has to stay: the Lua binding looks it up before every script, outside of any protection.)
"""

# Work of fakeredis that is not needed here: it hashes a script at every call, it looks for new globals after every command of a
# script (`_STRICT` refuses them), and it checks the type of every reply of its own commands.
vars(scripting_mixin).update(_check_for_lua_globals=lambda *_: None, hashlib=SimpleNamespace(sha1=cache(hashlib.sha1)))
vars(_base).update(valid_response_type=lambda *_: True)

COLLECT_EVERY = 100
"""Calls of scripts between two garbage collections of a runtime."""

_bytecode: dict[bytes, bytes] = {}
"""Script → its bytecode; to load bytecode takes a fifth of the time that compiling the script takes."""


class CompilingRuntime:
    """The Lua runtime of a fake server, which loads each script once and seldom collects garbage.

    fakeredis compiles a script at every call and collects all garbage after it; both take longer than the script does.
    """

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._compiled: dict[bytes, Any] = {}
        self._calls = 0

    def execute(self, code: Any) -> Any:
        """Run a script, or collect garbage if it is time to."""
        if code == "collectgarbage()":
            self._calls += 1
            return self._runtime.execute(code) if self._calls % COLLECT_EVERY == 0 else None
        if code not in self._compiled:
            self._compiled[code] = self._load(code)
        return self._compiled[code]()

    def _load(self, code: bytes) -> Any:
        if code not in _bytecode:
            _bytecode[code] = self._runtime.eval(b"string.dump")(self._runtime.compile(code))
        return self._runtime.compile(_bytecode[code])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)


class _CurrentSocket:
    """The connection whose script runs. It is not kept alive: through it the runtime would keep its last server."""

    def __init__(self) -> None:
        self._reference: Callable[[], Any] = lambda: None

    def __getitem__(self, _: int) -> Any:
        return self._reference()

    def __setitem__(self, _: int, connection: Any) -> None:
        self._reference = weakref.ref(connection)


_idle_runtimes: list[dict[str, Any]] = []
"""The Lua parts of servers whose client is gone: a runtime serves one server at a time, and another one after it."""


def _new_runtime() -> dict[str, Any]:
    host = fakeredis.FakeServer()  # which the callbacks of the runtime refer to for good
    fakeredis.FakeStrictRedis(server=host).eval(_STRICT, 0)
    parts = {name: value for name, value in vars(host).items() if name.startswith("_lua_")}
    parts["_lua_runtime"] = CompilingRuntime(parts["_lua_runtime"])
    parts["_lua_current_socket"] = vars(host)["_lua_current_socket"] = _CurrentSocket()
    return parts


def new_fake() -> RedisClient:
    """Return a client of a new, empty fake server, which ends when nothing refers to it any more."""
    server = fakeredis.FakeServer()
    parts = _idle_runtimes.pop() if _idle_runtimes else _new_runtime()
    vars(server).update(parts)
    client = fakeredis.FakeStrictRedis(server=server, decode_responses=True, protocol=2)
    weakref.finalize(client, _idle_runtimes.append, parts)  # not of the server, which refers to itself and lives on for a while
    return client


def fake() -> Iterator[RedisClient]:
    """Yield a new fake for as long as the context."""
    with new_fake() as client:
        yield client


class FakeRedisProvider:
    """A provider of servers for copies of workspaces: a new, empty fake each time."""

    empty_redis = staticmethod(contextmanager(fake))
