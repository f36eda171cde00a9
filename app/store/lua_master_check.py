"""The start of every composed command that can write: a refusal on a server that is not the master of the workspace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

OTHER_MASTER: Final = "other_master"
"""The tag of the reply if `meta` has another master; its field is the id of that master, or empty."""
MASTER_ARGUMENT: Final = "master"
"""The last argument of a command that compares the ids by itself. The connection fills it in."""


def master_check(args: Sequence[str]) -> list[str]:
    """Return the lines of the check for a command with these arguments. They run before any other command.

    A workspace gets a master at the first call after its first write. A call that finds no workspace writes nothing.
    """
    if MASTER_ARGUMENT in args:
        return []
    return [
        "do",
        "local master = redis.call('HGET', KEYS[2], 'master')",
        f"if master ~= ARGV[{len(args) + 1}] and (master or redis.call('EXISTS', KEYS[2], KEYS[1] .. 'pools') > 0) then",
        f"return {{'{OTHER_MASTER}', master or ''}}",
        "end",
        "end",
    ]
