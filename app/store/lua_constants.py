"""The constants of a Lua text, resolved when it is composed: keys, states and numbers cost a call nothing."""

from __future__ import annotations

import re
from functools import cache

from app.domain import queue_score
from app.domain.amounts import MAX_KEYS, UNBOUNDED
from app.domain.ledger_limits import FENCE_JUMP, MAX_STEPS, MAX_VICTIM_HOLDS
from app.domain.pool_settings import SETTINGS
from app.domain.workspace_limits import MAX_COMPONENT_LIMITS, REJECTED_KEPT_S, WORKSPACE_LIMITS
from app.store.keys import KEYS

CONSTANTS = {name: str(value) for name, value in vars(queue_score).items() if name.isupper()} | {"MAX_KEYS": str(MAX_KEYS)}
CONSTANTS["MAX_STEPS"] = str(MAX_STEPS)
CONSTANTS["FENCE_JUMP"] = str(FENCE_JUMP)
CONSTANTS["MAX_VICTIM_HOLDS"] = str(MAX_VICTIM_HOLDS)
CONSTANTS |= {name.upper(): str(row.default) for name, row in SETTINGS.items() if type(row.default) is int}
CONSTANTS |= {name.upper(): str(row.default) for name, row in WORKSPACE_LIMITS.items()}
CONSTANTS |= {"REJECTED_KEPT_S": str(REJECTED_KEPT_S), "MAX_COMPONENT_LIMITS": str(MAX_COMPONENT_LIMITS)}
CONSTANTS |= {
    name.upper(): f"{{{', '.join(f'{discipline} = {value}' for discipline, value in row.by_discipline.items())}}}"
    for name, row in SETTINGS.items()
    if row.by_discipline and not row.choices
}
CONSTANTS["UNBOUNDED"] = f"{{{', '.join(f'{key} = true' for key in sorted(UNBOUNDED))}}}"

_COMMENT_OR_STRING = re.compile(
    r"""--\[(=*)\[.*?\]\1\]|--[^\n]*|\[(=*)\[.*?\]\2\]|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*\"""",
    re.DOTALL,
)
"""Comments and strings."""
_CONSTANT = re.compile(r"(?<![\w:])(?<!(?<!\.)\.)(keys|states|const)\s*\.\s*(\w+)")
"""A mention of a key, a state or a constant."""


class LuaContractError(Exception):
    """A Lua file that differs from the contract in its head."""

    def __init__(self, file: str, line: int, message: str) -> None:
        super().__init__(file, line, message)
        self.file, self.line, self.message = file, line, message

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


def blank_comments(text: str) -> str:
    """Return the text with blanks in the place of comments and strings."""
    return _COMMENT_OR_STRING.sub(lambda silent: re.sub(r"[^\n]", " ", silent[0]), text)


@cache
def resolve_constants(text: str, file: str) -> str:
    """Return the text with its keys, states and numbers resolved, the last mention first, so that a key may contain another.

    Most commands use the same libraries: each is resolved once.
    """
    code = blank_comments(text)
    for match in reversed([*_CONSTANT.finditer(code)]):
        table, name, (start, end) = match[1], match[2], match.span()
        if table == "keys":
            arguments, end = _arguments(file, code, text, end)
            if len(arguments) != len(KEYS[name].parameters):
                line = text.count("\n", 0, start) + 1
                raise LuaContractError(
                    file, line, f"keys.{name} takes {len(KEYS[name].parameters)} values, not {len(arguments)}"
                )
            value = _key_expression(name, arguments)
        else:
            value = f"'{name}'" if table == "states" else CONSTANTS[name]
            if not value.isdigit() and table == "const":
                continue
        text, code = text[:start] + value + text[end:], code[:start] + blank_comments(value) + code[end:]
    return text


@cache
def qualify_libraries(text: str, names: tuple[str, ...]) -> str:
    """Return the text with `libraries.` before each mention of one of these libraries."""
    if not names:
        return text
    mention = re.compile(rf"(?<![\w:])(?<!(?<!\.)\.)(?=(?:{'|'.join(names)})\s*\.(?!\.))")
    for match in reversed([*mention.finditer(blank_comments(text))]):
        text = f"{text[: match.start()]}libraries.{text[match.start() :]}"
    return text


def _arguments(file: str, silenced: str, text: str, start: int) -> tuple[list[str], int]:
    """Return the arguments in the brackets that begin at `start`, and the position after the brackets."""
    if silenced[start : start + 1] != "(":
        raise LuaContractError(file, text.count("\n", 0, start) + 1, "a key is always called: keys.name(…)")
    depth, parts, part_start = 1, [], start + 1
    for place in range(start + 1, len(silenced)):
        depth += (silenced[place] in "([{") - (silenced[place] in ")]}")
        if depth == 0 or (depth == 1 and silenced[place] == ","):
            parts.append(text[part_start:place].strip())
            part_start = place + 1
        if depth == 0:
            return [part for part in parts if part], place + 1
    raise LuaContractError(file, text.count("\n", 0, start) + 1, "a bracket is not closed")


def _key_expression(name: str, arguments: list[str]) -> str:
    """Return the Lua expression of a key with these arguments."""
    pieces, parts = re.split(r"<(\w+)>", KEYS[name].shape), ["prefix"]
    values = iter(value if re.fullmatch(r"[\w.]+", value) else f"({value})" for value in arguments)
    for place, piece in enumerate(pieces):
        if place % 2:
            parts.append(next(values))
        elif piece:
            parts.append(f"'{piece}'")
    return f"({' .. '.join(parts)})"
