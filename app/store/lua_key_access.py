"""The keys that each function of a Lua file writes, as far as its text shows. The `@writes` of its head is checked against
them.

The key of a `redis.call` is found if the call builds it (`keys.pool(name)`), or if it is a local, the variable of a loop over
such keys, or a parameter of a local function that is called with one. Any other key is *indirect*: `account.key`, or the
parameter of a library's function. The head of the file names it in `@writes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from app.store.lua_constants import LuaContractError, blank_comments

READ_COMMANDS = {
    *("EXISTS", "GET", "HEXISTS", "HGET", "HGETALL", "HKEYS", "HLEN", "HMGET", "HSCAN", "HVALS", "LINDEX", "LRANGE", "PTTL"),
    *(
        "SCARD",
        "SISMEMBER",
        "SMEMBERS",
        "SRANDMEMBER",
        "SSCAN",
        "TIME",
        "XRANGE",
        "XREVRANGE",
        "ZCARD",
        "ZCOUNT",
        "ZMSCORE",
        "ZRANGE",
    ),
    *("ZRANGEBYLEX", "ZRANGEBYSCORE", "ZREVRANGEBYSCORE", "ZSCAN", "ZSCORE"),
}
WRITE_COMMANDS = {
    *("DEL", "GETEX", "HDEL", "HINCRBY", "HSET", "LTRIM", "PEXPIRE", "PUBLISH", "RPUSH", "SADD", "SET", "SREM", "XADD", "ZADD"),
    *("UNLINK", "ZREM", "ZREMRANGEBYSCORE", "ZUNIONSTORE"),
}
SEVERAL_KEYS = {"DEL", "EXISTS", "UNLINK"}
"""The commands whose arguments are all keys; of any other command only the first argument is a key."""

_CALL = re.compile(r"(?<![\w.])redis\s*\.\s*p?call\s*(?=\()")
_KEY = re.compile(r"(?<![\w.])keys\s*\.\s*(\w+)")
_BLOCK = re.compile(r"(?<![\w.])(function|if|do|repeat|end|until)(?!\w)")
_FUNCTION = re.compile(r"function\s+(?P<name>[\w.]+)\s*\((?P<parameters>[^)]*)\)")
_NAMES = r"[A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*"
_ASSIGNMENT = re.compile(rf"(?<![\w.])local\s+({_NAMES})\s*=(?!=)")
_LOOP = re.compile(rf"(?<![\w.])for\s+({_NAMES})\s+in\s+ipairs\s*(?=\()")
_FIELD = re.compile(r"(?<![\w.:])([A-Za-z_]\w*\.[A-Za-z_]\w*)")

CHUNK = ""
"""The name of the code outside all functions."""


@dataclass(slots=True)
class FunctionAccess:
    """The keys that one function of a file writes, and the functions that it mentions: `library.name`, or a name of its own
    file."""

    writes: dict[str, int] = field(default_factory=dict)
    indirect: list[int] = field(default_factory=list)
    """The lines of calls that write a key the text does not show."""
    mentions: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Function:
    name: str
    is_local: bool
    parameters: tuple[str, ...]
    start: int
    end: int


def key_access(text: str, file: str) -> dict[str, FunctionAccess]:
    """Return function → the keys that it writes; the code outside of functions has the empty name."""
    return _Reader(text, file).read()


def reachable_writes(
    start: Mapping[str, FunctionAccess],
    libraries: Mapping[str, Mapping[str, FunctionAccess]],
    indirect_keys: Mapping[str, frozenset[str]],
) -> frozenset[str]:
    """Return the keys written by functions that the code can reach; `start` is all of a command's own code.

    `indirect_keys` has for each library the keys of `@writes` that its text does not show.
    """
    found: set[str] = set()
    visited: set[tuple[str, str]] = set()
    waiting = [mention for access in start.values() for mention in access.mentions]
    while waiting:
        library, _, function = waiting.pop().partition(".")
        if library not in libraries:
            continue
        for name in (function, CHUNK):
            access = libraries[library].get(name)
            if access is None or (library, name) in visited:
                continue
            visited.add((library, name))
            found.update(access.writes)
            if access.indirect:
                found.update(indirect_keys[library])
            waiting += [mention if "." in mention else f"{library}.{mention}" for mention in access.mentions]
    return frozenset(found)


_Visited: TypeAlias = frozenset[tuple[_Function | None, str]]
"""The names whose values are being looked up."""


class _Reader:
    """The reading of one file."""

    def __init__(self, text: str, file: str) -> None:
        self._text, self._file, self._code = text, file, blank_comments(text)
        self._functions = [*self._find_functions()]

    def read(self) -> dict[str, FunctionAccess]:
        result = {CHUNK: FunctionAccess(mentions=self._mentions(self._outside()))}
        for each in self._functions:
            result[each.name] = FunctionAccess(mentions=self._mentions(self._code[each.start : each.end]))
        for match in _CALL.finditer(self._code):
            function = self._function_at(match.start())
            access = result[function.name if function else CHUNK]
            line = self._line(match.start())
            for expression, start in self._written_keys(match.end(), line):
                keys = self._resolve(expression, start, frozenset())
                if keys is None:
                    access.indirect.append(line)
                for key in sorted(keys or ()):
                    access.writes.setdefault(key, line)
        return result

    def _mentions(self, code: str) -> set[str]:
        own = "|".join(function.name for function in self._functions if function.is_local)
        return {*_FIELD.findall(code), *(re.findall(rf"(?<![\w.:])(?:{own})(?!\w)", code) if own else ())}

    def _outside(self) -> str:
        ends = [0, *(function.end for function in self._functions)]
        starts = [*(function.start for function in self._functions), len(self._code)]
        return " ".join(self._code[end:start] for end, start in zip(ends, starts, strict=True))

    def _line(self, position: int) -> int:
        return self._text.count("\n", 0, position) + 1

    def _written_keys(self, bracket: int, line: int) -> list[tuple[str, int]]:
        """Return the key expressions of a redis.call that writes, each with its position."""
        command, *arguments = self._split(bracket)
        names = set(re.findall(r"['\"]([A-Z]+)['\"]", command[0]))
        if unknown := names - READ_COMMANDS - WRITE_COMMANDS or (not names and {command[0]}):
            raise LuaContractError(self._file, line, f"{min(unknown)} is not known to read or write")
        if not names & WRITE_COMMANDS:
            return []
        return arguments if names & SEVERAL_KEYS else arguments[:1]

    def _split(self, bracket: int) -> list[tuple[str, int]]:
        """Return the texts between a bracket and its end, split at commas, each with its position."""
        depth, parts, start = 0, [], bracket + 1
        for position in range(bracket, len(self._code)):
            character = self._code[position]
            depth += (character in "([{") - (character in ")]}")
            if depth == 0 or (depth == 1 and character == ","):
                parts.append((self._text[start:position], start))
                start = position + 1
            if depth == 0:
                break
        return parts

    def _find_functions(self) -> Iterator[_Function]:
        """Yield the named functions that are in no other function. Anonymous functions belong to the function around them."""
        stack: list[tuple[re.Match[str] | None, int]] = []
        for block in _BLOCK.finditer(self._code):
            if block[1] in ("end", "until"):
                header, start = stack.pop()
                if header is not None and not any(outer for outer, _ in stack):
                    name = header["name"].rpartition(".")[2]
                    parameters = tuple(re.findall(r"\w+", header["parameters"]))
                    yield _Function(name, "." not in header["name"], parameters, start, block.end())
                continue
            header = _FUNCTION.match(self._code, block.start()) if block[1] == "function" else None
            stack.append((header, block.start()))

    def _function_at(self, position: int) -> _Function | None:
        return next((each for each in self._functions if each.start <= position < each.end), None)

    def _resolve(self, expression: str, position: int, visited: _Visited) -> set[str] | None:
        """Return the keys an expression can be; None if the text does not show them."""
        if keys := set(_KEY.findall(blank_comments(expression))):
            return keys
        name = expression.strip()
        function = self._function_at(position)
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or (function, name) in visited:
            return None
        visited |= {(function, name)}
        sources = [*self._assigned(name, position, function)]
        if not sources and function and name in function.parameters and function.is_local:
            sources = [*self._passed(function, function.parameters.index(name))]
        found = [self._resolve(source, start, visited) for source, start in sources]
        if not found or None in found:
            return None
        return {key for keys in found for key in keys or ()}

    def _assigned(self, name: str, position: int, function: _Function | None) -> Iterator[tuple[str, int]]:
        """Yield the values that a local or a loop variable gets before a position, in the same function or outside of all."""
        for match in _LOOP.finditer(self._code, 0, position):
            if name in re.findall(r"\w+", match[1]) and self._function_at(match.start()) in (function, None):
                yield from self._split(match.end())[:1]
        for match in _ASSIGNMENT.finditer(self._code, 0, position):
            names = re.findall(r"\w+", match[1])
            if name in names and self._function_at(match.start()) in (function, None):
                values = self._values(match.end())
                yield values[min(names.index(name), len(values) - 1)]

    def _values(self, start: int) -> list[tuple[str, int]]:
        """Return the expressions of an assignment, up to the end of its line outside of brackets."""
        depth, parts, begin, position = 0, [], start, start
        while position < len(self._code):
            character = self._code[position]
            depth += (character in "([{") - (character in ")]}")
            if depth < 0 or (depth == 0 and character == "\n"):
                break
            if depth == 0 and character == ",":
                parts.append((self._text[begin:position], begin))
                begin = position + 1
            position += 1
        return [*parts, (self._text[begin:position], begin)]

    def _passed(self, function: _Function, index: int) -> Iterator[tuple[str, int]]:
        """Yield the arguments for a parameter of a local function in all calls of the file."""
        for match in re.finditer(rf"(?<![\w.]){function.name}\s*(?=\()", self._code):
            if not re.search(r"function\s+$", self._code[: match.start()]):
                arguments = self._split(match.end())
                yield arguments[index] if index < len(arguments) else ("nil", match.end())
