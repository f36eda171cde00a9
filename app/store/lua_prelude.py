"""The prelude of a composed Lua text, and the frame of its libraries.

A library is a function that runs when the library is first used, so a call makes only the functions that it needs. Other files
reach the libraries through one table. With a local for each, every call would make a table and search among the locals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from app.domain.states import TRANSITIONS
from app.store.lua_constants import CONSTANTS

if TYPE_CHECKING:
    from app.store.lua_linker import LuaSource

LIBRARY_LOADER = (
    "local _load = {}",
    "local libraries = setmetatable({}, {__index = function(libraries, name)",
    "local library = {}",
    "libraries[name] = library",
    "_load[name](library)",
    "return library",
    "end})",
)
"""Lua that makes a library when it is first used. A library that a call does not use costs the call one closure."""
STEP_COUNTER = (
    "local server_calls, _call = {count = 0}, redis.call",
    "local redis = {call = _call, pcall = redis.pcall}",
    "function server_calls.start()",
    "redis.call = function(...)",
    "server_calls.count = server_calls.count + 1",
    "return _call(...)",
    "end",
    "end",
)
"""Lua that counts the commands of a call from `start()` on. A call with one item of work has no counter."""


def library_frame(name: str) -> tuple[list[str], list[str]]:
    """Return the lines before and after the text of a library."""
    return [f"function _load.{name}({name})"], ["end"]


def prelude(command: LuaSource, sources: list[LuaSource]) -> list[str]:
    """Return the lines that define the names that the files use without `@use`."""
    lines: list[str] = []
    if any("keys" in source.mentions for source in sources):
        lines.append("local prefix = KEYS[1]")
    if args := command.declarations["args"]:
        lines.append("local args = " + _table_text({name: f"ARGV[{place}]" for place, name in enumerate(args, 1)}))
    if any("server_calls" in source.mentions for source in sources):
        lines += STEP_COUNTER
    if any("transitions" in source.mentions for source in sources):
        ways = (f"{state}>{to}" for state, after in TRANSITIONS.items() for to in sorted(after))
        lines.append(f"local transitions = ' {' '.join(ways)} '")
    mentioned = sorted({name for source in sources for name in source.fields("const")})
    if tables := {name: CONSTANTS[name] for name in mentioned if not CONSTANTS[name].isdigit()}:
        lines.append("local const = " + _table_text(tables))
    return [*lines, *_reply_functions(command)]


def _table_text(fields: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{field} = {value}" for field, value in fields.items()) + "}"


def _reply_functions(command: LuaSource) -> list[str]:
    """Return the lines of `reply.<tag>` for every outcome. Nil and numbers become text: a nil would cut the reply short, and a
    large number would lose digits."""
    lines = ["local reply = {}", "do"]
    if any(command.replies.values()):
        lines += ["local function _plain(value)", "if not value then return '' end", "if value == true then return '1' end"]
        lines += ["return type(value) == 'number' and string.format('%.0f', value) or value", "end"]
    for tag, fields in command.replies.items():
        values = "".join(f", _plain({field})" for field in fields)
        lines.append(f"function reply.{tag}({', '.join(fields)}) return {{'{tag}'{values}}} end")
    return [*lines, "end"]
