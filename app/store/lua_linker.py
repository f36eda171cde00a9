"""Lua files made into commands: their heads are read, checked against what they do, and composed into one text each.

`<command>.lua` is one atomic command, `lib/<library>.lua` is a table of functions. The comment block a file begins with is
its contract: a sentence, `@use` libraries, `@keys` the file builds and, for commands, `@args` in order and one `@reply` per
outcome. A composed text is

1. a prelude with only what is used: `args`, `transitions`, `reply`, and constants that are tables; all of it runs on every call
2. every library once, each after those it uses, inside `do … end` so that its locals do not count (Lua allows 200)
3. the command

What is known when composing is written out and costs a call nothing: `keys.pool(name)` becomes `(prefix .. 'pool:' .. name)`,
`states.queued` its text, `const.EXACT` its number. Lines stay as they are, so an error is found where it was written.
`transitions` is one text to search, ` queued>allocated … `, which is made without a table.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

from app.domain.states import TRANSITIONS
from app.store.keys import KEYS
from app.store.lua_constants import CONSTANTS, Malformed, resolved, silenced

FOLDER = Path(__file__).parent / "lua"
_KEYWORDS = "and break do else elseif end false for function if in local nil not or repeat return then true until while"
_TAKEN = "prefix keys args states transitions const reply KEYS ARGV redis server cjson string table math os bit struct cmsgpack"
_MENTION = re.compile(r"(?<![\w:])(?<!(?<!\.)\.)([A-Za-z_]\w*)(?:\s*\.(?!\.)\s*([A-Za-z_]\w*))?")
"""A name that is not a field of something (`..` may stand before it), and the field of it that follows."""


@dataclass(frozen=True, slots=True)
class Source:
    """One Lua file: its head (word → name → line) and every name the rest mentions (name → field or "" → first line)."""

    file: str
    name: str
    text: str
    sentence: str
    declared: Mapping[str, Mapping[str, int]]
    replies: Mapping[str, tuple[str, ...]]
    mentioned: Mapping[str, Mapping[str, int]]

    @property
    def is_library(self) -> bool:
        """Whether it is used by others and not called."""
        return self.file.startswith("lib/")

    def fields(self, table: str) -> dict[str, int]:
        """The fields of a table that the file mentions, and the line of the first mention."""
        return {field: line for field, line in self.mentioned.get(table, {}).items() if field}


@dataclass(frozen=True, slots=True)
class Command:
    """One atomic command, ready to be sent."""

    name: str
    sentence: str
    args: tuple[str, ...]
    replies: Mapping[str, tuple[str, ...]]
    libraries: tuple[str, ...]
    text: str
    sha: str
    spans: tuple[tuple[int, int, str], ...]
    given: frozenset[str]

    @property
    def file(self) -> str:
        """The file the command itself stands in."""
        return f"{self.name}.lua"

    def where(self, line: int) -> str:
        """The file and line that a line of the composed text comes from."""
        for first, last, file in self.spans:
            if first <= line <= last:
                return f"{file}:{line - first + 1}"
        return f"prelude:{line}"


def load_commands(folder: Path = FOLDER) -> dict[str, Command]:
    """Every command of a folder by name, or Malformed. The service's own folder is read once per process."""
    return _own_commands() if folder == FOLDER else _load(folder)


def composed(folder: Path = FOLDER) -> Iterator[tuple[str, str]]:
    """The name and composed text of every command of a folder."""
    return ((command.name, command.text) for command in load_commands(folder).values())


@cache
def _own_commands() -> dict[str, Command]:
    return _load(FOLDER)


def _load(folder: Path) -> dict[str, Command]:
    commands = [_read(path, path.name) for path in sorted(folder.glob("*.lua"))]
    libraries = {path.stem: _read(path, f"lib/{path.name}") for path in sorted((folder / "lib").glob("*.lua"))}
    for source in (*libraries.values(), *commands):
        _check(source, libraries)
    for command in commands:
        if command.name in libraries:
            raise Malformed(command.file, 1, f"a library is called {command.name}, too")
    return {command.name: _compose(command, _in_order(command, libraries)) for command in commands}


def _read(path: Path, file: str) -> Source:
    text = path.read_text(encoding="utf-8").rstrip("\n")
    head = [line[2:].split() for line in takewhile(lambda line: re.match(r"--(?!\[)", line), text.split("\n"))]
    sentence = " ".join(" ".join(words) for words in takewhile(lambda words: words and words[0][0] != "@", head))
    declared: dict[str, dict[str, int]] = {"use": {}, "keys": {}, "args": {}, "reply": {}}
    replies: dict[str, tuple[str, ...]] = {}
    for line, words in enumerate(head, 1):
        if not words or words[0][0] != "@":
            continue
        kind, names = words[0], words[1:]
        if kind[1:] not in declared:
            raise Malformed(file, line, f"{kind} is not known: only @use, @keys, @args and @reply are")
        _check_names(file, line, kind, names)
        if kind == "@reply":
            replies.setdefault(names[0], tuple(names[1:]))
            names = names[:1]
        for name in names:
            if declared[kind[1:]].setdefault(name, line) != line:
                raise Malformed(file, line, f"{kind} {name} is declared twice")
    return Source(file, path.stem, text, sentence, declared, replies, _mentioned(text))


def _check_names(file: str, line: int, kind: str, names: list[str]) -> None:
    if not names:
        raise Malformed(file, line, f"{kind} names nothing")
    for place, name in enumerate(names):
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or name in _KEYWORDS.split():
            raise Malformed(file, line, f"{name} is not a name in Lua")
        if name in names[:place]:
            raise Malformed(file, line, f"{kind} {name} is declared twice")


def _mentioned(text: str) -> dict[str, dict[str, int]]:
    code = silenced(text)
    mentioned: dict[str, dict[str, int]] = {}
    for number, line in enumerate(code.split("\n"), 1):
        for mention in _MENTION.finditer(line):
            mentioned.setdefault(mention[1], {}).setdefault(mention[2] or "", number)
    return mentioned


def _check(source: Source, libraries: Mapping[str, Source]) -> None:
    """Raise Malformed unless the file does what its head says, no more and no less."""
    if not source.sentence:
        raise Malformed(source.file, 1, "the head does not begin with a sentence that says what this does")
    _check_names(source.file, 1, "file", [source.name])
    if source.is_library:
        _check_library(source)
    elif not source.replies:
        raise Malformed(source.file, 1, "a command has at least one @reply")
    used = {name: min(lines.values()) for name in {*libraries} - {source.name} if (lines := source.fields(name))}
    _known(source, "library", source.declared["use"], libraries)
    _known(source, "key", source.declared["keys"], KEYS)
    _known(source, "state", source.fields("states"), TRANSITIONS)
    _known(source, "constant", source.fields("const"), CONSTANTS)
    _same(source, "@use", used)
    for kind in ("keys", "args", "reply"):
        _same(source, f"@{kind}", source.fields(kind))
    _in_order(source, libraries)


def _check_library(source: Source) -> None:
    if source.name in _TAKEN.split():
        raise Malformed(source.file, 1, f"a library cannot be called {source.name}, which is something else already")
    for kind in ("args", "reply"):
        for line in source.declared[kind].values():
            raise Malformed(source.file, line, f"@{kind} is for commands")
    for line in source.mentioned.get("args", {}).values():
        raise Malformed(source.file, line, "args belongs to the command, which hands a library what it needs")


def _known(source: Source, kind: str, names: Mapping[str, int], known: Iterable[str]) -> None:
    for name, line in names.items():
        if name not in known:
            raise Malformed(source.file, line, f"there is no {kind} {name}")


def _same(source: Source, kind: str, used: Mapping[str, int]) -> None:
    declared = source.declared[kind[1:]]
    for name, line in declared.items():
        if name not in used:
            raise Malformed(source.file, line, f"{kind} {name} is declared but not used")
    for name, line in used.items():
        if name not in declared:
            raise Malformed(source.file, line, f"{name} is used but not declared with {kind}")


def _in_order(source: Source, libraries: Mapping[str, Source]) -> list[Source]:
    """The libraries a file needs, each after those it uses."""
    done: dict[str, Source] = {}

    def visit(user: Source, way: tuple[str, ...]) -> None:
        _known(user, "library", user.declared["use"], libraries)
        for name, line in user.declared["use"].items():
            if name in way:
                circle = " -> ".join((*way[way.index(name) :], name))
                raise Malformed(user.file, line, f"libraries use each other in a circle: {circle}")
            if name not in done:
                visit(libraries[name], (*way, name))
                done[name] = libraries[name]

    visit(source, (source.name,) if source.is_library else ())
    return list(done.values())


def _compose(command: Source, libraries: list[Source]) -> Command:
    lines = _prelude(command, [*libraries, command])
    spans = []
    for source in (*libraries, command):
        before, after = ([f"local {source.name} = {{}}", "do"], ["end"]) if source.is_library else ([], [])
        lines += [*before, *resolved(source.text, source.file).split("\n")]
        spans.append((len(lines) - source.text.count("\n"), len(lines), source.file))
        lines += after
    text = "\n".join(lines) + "\n"
    return Command(
        name=command.name,
        sentence=command.sentence,
        args=tuple(command.declared["args"]),
        replies=command.replies,
        libraries=tuple(library.name for library in libraries),
        text=text,
        sha=hashlib.sha1(text.encode()).hexdigest(),
        spans=tuple(spans),
        given=frozenset(command.declared["args"]),
    )


def _prelude(command: Source, sources: list[Source]) -> list[str]:
    """What the files take for granted, and nothing they do not mention."""
    lines: list[str] = []
    if any("keys" in source.mentioned for source in sources):
        lines.append("local prefix = KEYS[1]")
    if args := command.declared["args"]:
        lines.append("local args = " + _fields({name: f"ARGV[{place}]" for place, name in enumerate(args, 1)}))
    if any("transitions" in source.mentioned for source in sources):
        ways = (f"{state}>{to}" for state, after in TRANSITIONS.items() for to in sorted(after))
        lines.append(f"local transitions = ' {' '.join(ways)} '")
    mentioned = sorted({name for source in sources for name in source.fields("const")})
    if tables := {name: CONSTANTS[name] for name in mentioned if not CONSTANTS[name].isdigit()}:
        lines.append("local const = " + _fields(tables))
    return [*lines, *_reply_functions(command)]


def _fields(fields: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{field} = {value}" for field, value in fields.items()) + "}"


def _reply_functions(command: Source) -> list[str]:
    """`reply.<tag>` for every outcome. A nil would cut the reply short and a large number lose digits: both become text."""
    lines = ["local reply = {}", "do"]
    if any(command.replies.values()):
        lines += ["local function _plain(value)", "if not value then return '' end", "if value == true then return '1' end"]
        lines += ["return type(value) == 'number' and string.format('%.0f', value) or value", "end"]
    for tag, fields in command.replies.items():
        values = "".join(f", _plain({field})" for field in fields)
        lines.append(f"function reply.{tag}({', '.join(fields)}) return {{'{tag}'{values}}} end")
    return [*lines, "end"]


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for command_name, text in composed():
        (target / f"{command_name}.lua").write_text(text, encoding="utf-8")
