"""The keys that each command really writes on the fake Redis, compared with those that its head and its libraries declare."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

import pytest
from fakeredis.commands_mixins.scripting_mixin import ScriptingCommandsMixin
from fakeredis.model import is_write_command

from app.store.keys import KEYS
from app.store.lua_key_access import SEVERAL_KEYS
from app.store.lua_linker import load_commands
from app.store.scripts import ScriptReply, Scripts

_FREE = {"id", "key", "need", "slot"}
"""Values of a shape that can hold a colon."""
_SHAPES = {
    name: re.compile(
        r"pk:\{[^}]*\}:"
        + "".join(
            (".+" if piece in _FREE else "[^:]+") if place % 2 else re.escape(piece)
            for place, piece in enumerate(re.split(r"<(\w+)>", key.shape))
        )
    )
    for name, key in KEYS.items()
}


@lru_cache(10_000)
def key_name(key: str) -> str:
    """Return the name of a key in the list of keys."""
    (name,) = [name for name, shape in _SHAPES.items() if shape.fullmatch(key)]
    return name


@cache
def _written_arguments(operation: bytes) -> slice | None:
    """Return which arguments of an operation are keys that it writes; None if it writes none."""
    command = operation.decode().upper()
    if not is_write_command(operation.lower()) and command != "PUBLISH":
        return None
    return slice(None) if command in SEVERAL_KEYS else slice(1)


@contextmanager
def observe_writes(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[tuple[str, str]]]:
    """Collect (command, key) of every write of a command on the fake that the command does not declare."""
    undeclared: set[tuple[str, str]] = set()
    running: list[str] = []
    run_in_lua, call = ScriptingCommandsMixin._lua_redis_call, Scripts.call

    def observed_run(self: Any, runtime: Any, names: Any, operation: bytes, *args: Any) -> Any:
        if running and (written := _written_arguments(operation)):
            for key in args[written]:
                if (name := key_name(key.decode())) not in load_commands()[running[-1]].writes:
                    undeclared.add((running[-1], name))
        return run_in_lua(self, runtime, names, operation, *args)

    def observed_call(self: Scripts, command: str, workspace: str, /, **args: Any) -> ScriptReply:
        if command not in load_commands():
            return call(self, command, workspace, **args)
        running.append(command)
        try:
            return call(self, command, workspace, **args)
        finally:
            running.pop()

    monkeypatch.setattr(ScriptingCommandsMixin, "_lua_redis_call", observed_run)
    monkeypatch.setattr(Scripts, "call", observed_call)
    yield undeclared
