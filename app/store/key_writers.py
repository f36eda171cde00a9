"""The commands that write each key, and the page of documentation that lists them; `make generated` writes the page."""

from __future__ import annotations

from app.store.keys import BARRIER, KEYS, SCHEMA_NUMBER, WORKSPACES
from app.store.lua_linker import load_commands

GRANT_LOOP = "grant_loop"
"""The library of the grant loop, which follows every change. Each command with the loop writes all that the loop writes."""

_HEAD = """\
# Redis keys

For a developer of Poolkeeper: all keys in Redis, and the scripts that write them. Every key is `pk:{workspace}:` and the name
in the table. `app/store/keys.py` is the only place that builds keys; its docstring explains components, lanes, constraints and
slots. Only the scripts write. *Granting commands* are those that end with the grant loop; their names are below the table.
`poolkeeperd audit --repair` finds and repairs wrong entries.

"""


def writers(key: str) -> list[str]:
    """Return the names of the commands that can write a key, in order."""
    return sorted(name for name, command in load_commands().items() if key in command.writes)


def granting_commands() -> list[str]:
    """Return the names of the commands that end with the grant loop, in order."""
    return sorted(name for name, command in load_commands().items() if GRANT_LOOP in command.libraries)


def page() -> str:
    """Return the page: every key with its type, its meaning and its writers."""
    granting = granting_commands()
    rows = [
        f"| {_cell(key.shape)} | {key.type} | {key.meaning} | {_writers_cell(writers(name), granting)} |"
        for name, key in KEYS.items()
    ]
    table = ["| key | type | meaning | written by |", "| --- | --- | --- | --- |", *rows]
    notes = [
        f"*Granting commands*: {_names(granting)}.",
        f"Two keys belong to no workspace. `{WORKSPACES}` is the set of their names; the first use of a workspace writes it.",
        f"`{SCHEMA_NUMBER}` is the number of the schema; a process that finds Redis empty writes it.",
        f"No script writes `{BARRIER}`: with `replicas_acknowledge` a connection writes it, and it expires after the WAIT.",
        "This page is generated from `app/store/keys.py` and the heads of the scripts: `make generated`.",
    ]
    return _HEAD + "\n".join(table) + "\n\n" + "\n\n".join(notes) + "\n"


def _writers_cell(names: list[str], granting: list[str]) -> str:
    """Return the writers of one key. If all commands with the grant loop write it, they are named by one word."""
    if not set(granting) <= set(names):
        return _names(names)
    others = [name for name in names if name not in granting]
    return ", ".join(filter(None, ["*granting commands*", _names(others)]))


def _cell(shape: str) -> str:
    """Return a shape as a cell of a table, with a backslash before each bar."""
    return f"`{shape}`".replace("|", "\\|")


def _names(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
