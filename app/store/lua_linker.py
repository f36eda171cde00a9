"""The Lua linker: reads the heads of the Lua files, checks them against the code, and composes one text for each command.

`<topic>/<command>.lua` is one atomic command, `lib/<library>.lua` is a table of functions. A name is unique over all folders.
The comment block at the start of a file is its contract: a sentence, `@use` libraries, `@reads` and `@writes` keys and, for
commands, `@args` in order and one `@reply` per outcome. `@writes` names every key that the file itself writes, even if it reads
the key as well, or writes it through a variable such as `account.key`. `@reads` names the other keys that the file builds. The
keys that a library writes are in the head of the library. A composed text is

0. for a command that can write, the check of the master (`lua_master_check.py`)
1. a prelude with only the names that are used: `args`, `server_calls`, `transitions`, `reply`, and constants that are tables;
   all of it runs on every call
2. every library once, each after those it uses, as a function that runs when the library is first used. So a call makes only
   what it needs, and the locals of libraries do not count (Lua allows 200). Other files reach it as `libraries.<name>`
3. the command

Constants are resolved when the text is composed and cost a call nothing: `keys.pool(name)` becomes `(prefix .. 'pool:' ..
name)`, `states.queued` its text, `const.MAX_AMOUNT` its number. Lines stay as they are, so an error is reported at its own
line. `transitions` is one text to search, ` queued>allocated … `, which needs no table.
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
from app.store.lua_constants import CONSTANTS, LuaContractError, blank_comments, qualify_libraries, resolve_constants
from app.store.lua_key_access import FunctionAccess, key_access, reachable_writes
from app.store.lua_master_check import MASTER_ARGUMENT, master_check
from app.store.lua_prelude import LIBRARY_LOADER, library_frame, prelude

FOLDER = Path(__file__).parent / "lua"
_KEYWORDS = "and break do else elseif end false for function if in local nil not or repeat return then true until while"
_RESERVED_NAMES = (
    "prefix keys args states server_calls transitions const reply libraries KEYS ARGV redis server "
    "cjson string table math os bit struct cmsgpack"
)
_MENTION = re.compile(r"(?<![\w:])(?<!(?<!\.)\.)([A-Za-z_]\w*)(?:\s*\.(?!\.)\s*([A-Za-z_]\w*))?")
"""A name that is not a field (`..` may precede it), with the field of it that follows."""


@dataclass(frozen=True, slots=True)
class LuaSource:
    """One Lua file: its head (word → name → line) and every name that the rest mentions (name → field or "" → first line)."""

    file: str
    name: str
    text: str
    sentence: str
    declarations: Mapping[str, Mapping[str, int]]
    replies: Mapping[str, tuple[str, ...]]
    mentions: Mapping[str, Mapping[str, int]]
    access: Mapping[str, FunctionAccess]

    @property
    def visible_writes(self) -> dict[str, int]:
        """Return the keys that the text shows to be written, with the line of the first write."""
        first: dict[str, int] = {}
        writes = [(line, key) for function in self.access.values() for key, line in function.writes.items()]
        for line, key in sorted(writes):
            first.setdefault(key, line)
        return first

    @property
    def indirect_keys(self) -> frozenset[str]:
        """Return the keys of `@writes` that are written through a variable, so that the text does not show them."""
        return frozenset(self.declarations["writes"].keys() - self.visible_writes.keys())

    @property
    def is_library(self) -> bool:
        """True if the file is a library, not a command."""
        return self.file.startswith("lib/")

    def fields(self, table: str) -> dict[str, int]:
        """Return the fields of a table that the file mentions, with the line of the first mention."""
        return {field: line for field, line in self.mentions.get(table, {}).items() if field}


@dataclass(frozen=True, slots=True)
class LuaCommand:
    """One atomic command with its composed text."""

    name: str
    file: str
    sentence: str
    args: tuple[str, ...]
    replies: Mapping[str, tuple[str, ...]]
    libraries: tuple[str, ...]
    text: str
    sha: str
    spans: tuple[tuple[int, int, str], ...]
    caller_args: tuple[str, ...]
    """The arguments that a caller passes, in order; the connection adds the id of the master."""
    arg_names: frozenset[str]
    writes: frozenset[str]
    """The keys that the command can write, those of its libraries included."""

    def where(self, line: int) -> str:
        """Return the file and line of a line of the composed text."""
        for first, last, file in self.spans:
            if first <= line <= last:
                return f"{file}:{line - first + 1}"
        return f"prelude:{line}"


def load_commands(folder: Path = FOLDER) -> dict[str, LuaCommand]:
    """Return every command of a folder by name, or raise LuaContractError. The service's own folder is read once per
    process."""
    return _own_commands() if folder == FOLDER else _load(folder)


def composed_texts(folder: Path = FOLDER) -> Iterator[tuple[str, str]]:
    """Yield the name and composed text of every command of a folder."""
    return ((command.name, command.text) for command in load_commands(folder).values())


@cache
def _own_commands() -> dict[str, LuaCommand]:
    return _load(FOLDER)


def _load(folder: Path) -> dict[str, LuaCommand]:
    sources = [_read(path, path.relative_to(folder).as_posix()) for path in sorted(folder.rglob("*.lua"))]
    libraries = {source.name: source for source in sources if source.is_library}
    commands = [source for source in sources if not source.is_library]
    for source in (*libraries.values(), *commands):
        _check(source, libraries)
    files: dict[str, str] = {}
    for command in commands:
        if command.name in libraries:
            raise LuaContractError(command.file, 1, f"a library is called {command.name}, too")
        if (other := files.setdefault(command.name, command.file)) != command.file:
            raise LuaContractError(command.file, 1, f"{other} is called {command.name}, too")
    return {command.name: _compose(command, _sort_libraries(command, libraries)) for command in commands}


def _read(path: Path, file: str) -> LuaSource:
    text = path.read_text(encoding="utf-8").rstrip("\n")
    head = [line[2:].split() for line in takewhile(lambda line: re.match(r"--(?!\[)", line), text.split("\n"))]
    sentence = " ".join(" ".join(words) for words in takewhile(lambda words: words and words[0][0] != "@", head))
    declared: dict[str, dict[str, int]] = {"use": {}, "reads": {}, "writes": {}, "args": {}, "reply": {}}
    replies: dict[str, tuple[str, ...]] = {}
    for line, words in enumerate(head, 1):
        if not words or words[0][0] != "@":
            continue
        kind, names = words[0], words[1:]
        if kind[1:] not in declared:
            raise LuaContractError(file, line, f"{kind} is not known: only @use, @reads, @writes, @args and @reply are")
        _check_names(file, line, kind, names)
        if kind == "@reply":
            replies.setdefault(names[0], tuple(names[1:]))
            names = names[:1]
        for name in names:
            if declared[kind[1:]].setdefault(name, line) != line:
                raise LuaContractError(file, line, f"{kind} {name} is declared twice")
    return LuaSource(file, path.stem, text, sentence, declared, replies, _find_mentions(text), key_access(text, file))


def _check_names(file: str, line: int, kind: str, names: list[str]) -> None:
    if not names:
        raise LuaContractError(file, line, f"{kind} names nothing")
    for place, name in enumerate(names):
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or name in _KEYWORDS.split():
            raise LuaContractError(file, line, f"{name} is not a name in Lua")
        if name in names[:place]:
            raise LuaContractError(file, line, f"{kind} {name} is declared twice")


def _find_mentions(text: str) -> dict[str, dict[str, int]]:
    code = blank_comments(text)
    mentioned: dict[str, dict[str, int]] = {}
    for number, line in enumerate(code.split("\n"), 1):
        for mention in _MENTION.finditer(line):
            mentioned.setdefault(mention[1], {}).setdefault(mention[2] or "", number)
    return mentioned


def _check(source: LuaSource, libraries: Mapping[str, LuaSource]) -> None:
    """Raise LuaContractError unless the code agrees with the head."""
    if not source.sentence:
        raise LuaContractError(source.file, 1, "the head does not begin with a sentence that says what this does")
    _check_names(source.file, 1, "file", [source.name])
    if source.is_library:
        _check_library(source)
    elif not source.replies:
        raise LuaContractError(source.file, 1, "a command has at least one @reply")
    used = {name: min(lines.values()) for name in {*libraries} - {source.name} if (lines := source.fields(name))}
    _require_existing(source, "library", source.declarations["use"], libraries)
    _require_existing(source, "key", {**source.declarations["reads"], **source.declarations["writes"]}, KEYS)
    _require_existing(source, "state", source.fields("states"), TRANSITIONS)
    _require_existing(source, "constant", source.fields("const"), CONSTANTS)
    _require_same(source, "@use", used)
    for kind in ("args", "reply"):
        _require_same(source, f"@{kind}", source.fields(kind))
    _check_writes(source)
    _require_same(
        source, "@reads", {key: line for key, line in source.fields("keys").items() if key not in source.declarations["writes"]}
    )
    _sort_libraries(source, libraries)


def _check_library(source: LuaSource) -> None:
    if source.name in _RESERVED_NAMES.split():
        raise LuaContractError(source.file, 1, f"a library cannot be called {source.name}, which is something else already")
    for kind in ("args", "reply"):
        for line in source.declarations[kind].values():
            raise LuaContractError(source.file, line, f"@{kind} is for commands")
    for line in source.mentions.get("args", {}).values():
        raise LuaContractError(source.file, line, "args belongs to the command, which hands a library what it needs")


def _check_writes(source: LuaSource) -> None:
    """Raise unless `@writes` names all keys that the text shows to be written, and beyond them only keys in variables."""
    declared, visible = source.declarations["writes"], source.visible_writes
    for key, line in visible.items():
        if key not in declared:
            raise LuaContractError(source.file, line, f"{key} is written but not declared with @writes")
    indirect = [line for function in source.access.values() for line in function.indirect]
    for key in source.indirect_keys:
        if not indirect:
            raise LuaContractError(source.file, declared[key], f"@writes {key} is declared but not written")
    if indirect and not source.indirect_keys:
        raise LuaContractError(source.file, min(indirect), "a key is written through a variable and not declared with @writes")


def _require_existing(source: LuaSource, kind: str, names: Mapping[str, int], existing: Iterable[str]) -> None:
    for name, line in names.items():
        if name not in existing:
            raise LuaContractError(source.file, line, f"there is no {kind} {name}")


def _require_same(source: LuaSource, kind: str, used: Mapping[str, int]) -> None:
    declared = source.declarations[kind[1:]]
    for name, line in declared.items():
        if name not in used:
            raise LuaContractError(source.file, line, f"{kind} {name} is declared but not used")
    for name, line in used.items():
        if name not in declared:
            raise LuaContractError(source.file, line, f"{name} is used but not declared with {kind}")


def _sort_libraries(source: LuaSource, libraries: Mapping[str, LuaSource]) -> list[LuaSource]:
    """Return the libraries that a file needs, each after those it uses."""
    done: dict[str, LuaSource] = {}

    def visit(user: LuaSource, way: tuple[str, ...]) -> None:
        _require_existing(user, "library", user.declarations["use"], libraries)
        for name, line in user.declarations["use"].items():
            if name in way:
                circle = " -> ".join((*way[way.index(name) :], name))
                raise LuaContractError(user.file, line, f"libraries use each other in a circle: {circle}")
            if name not in done:
                visit(libraries[name], (*way, name))
                done[name] = libraries[name]

    visit(source, (source.name,) if source.is_library else ())
    return list(done.values())


def _compose(command: LuaSource, libraries: list[LuaSource]) -> LuaCommand:
    writes = _reachable_writes(command, libraries)
    lines = [*(master_check([*command.declarations["args"]]) if writes else []), *prelude(command, [*libraries, command])]
    lines += LIBRARY_LOADER if libraries else ()
    spans = []
    for source in (*libraries, command):
        before, after = library_frame(source.name) if source.is_library else ([], [])
        body = qualify_libraries(resolve_constants(source.text, source.file), tuple(source.declarations["use"]))
        lines += [*before, *body.split("\n")]
        spans.append((len(lines) - source.text.count("\n"), len(lines), source.file))
        lines += after
    text = "\n".join(lines) + "\n"
    caller_args = tuple(name for name in command.declarations["args"] if name != MASTER_ARGUMENT)
    return LuaCommand(
        name=command.name,
        file=command.file,
        sentence=command.sentence,
        args=tuple(command.declarations["args"]),
        replies=command.replies,
        libraries=tuple(library.name for library in libraries),
        text=text,
        sha=hashlib.sha1(text.encode()).hexdigest(),
        spans=tuple(spans),
        caller_args=caller_args,
        arg_names=frozenset(caller_args),
        writes=writes,
    )


def _reachable_writes(command: LuaSource, libraries: list[LuaSource]) -> frozenset[str]:
    access = {library.name: library.access for library in libraries}
    indirect = {library.name: library.indirect_keys for library in libraries}
    return reachable_writes(command.access, access, indirect) | command.declarations["writes"].keys()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for command_name, text in composed_texts():
        (target / f"{command_name}.lua").write_text(text, encoding="utf-8")
