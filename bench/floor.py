"""The floor: bare scripts that issue the same Redis commands as ours, in kind, number and order, with no logic between them.

What ours issue is not written down anywhere that could grow old: it is read off the server with MONITOR. The request's id and
the fence stay arguments; all else is literal.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from redis import Redis

Command = list[str]


@dataclass(frozen=True, slots=True)
class Bare:
    """A script without logic."""

    commands: int
    sha: str

    def run(self, client: Redis, *args: str) -> object:
        """Call it as ours are called."""
        return client.evalsha(self.sha, 1, "pk:{bench}:", *args)


def issued(client: Redis, act: Callable[[], object]) -> list[Command]:
    """The commands scripts issue while `act` runs."""
    marker = "end-of-recording"
    connection = client.connection_pool.get_connection()
    try:
        connection.send_command("MONITOR")  # type: ignore[no-untyped-call]
        connection.read_response()
        act()
        client.echo(marker)
        commands: list[Command] = []
        while True:
            line = str(connection.read_response())
            if marker in line:
                return commands
            where, _, words = line.partition("] ")
            if where.endswith("lua"):
                commands.append(shlex.split(words))
    finally:
        connection.disconnect()  # type: ignore[no-untyped-call]


def bare(client: Redis, commands: list[Command], arguments: dict[str, int]) -> Bare:
    """A script that issues them again; words among `arguments` become ARGV of that number."""
    lines = []
    for command in commands:
        words = [_word(word, arguments) for word in command]
        lines.append(f"redis.call({', '.join(words)})")
    text = "\n".join([*lines, "return {'done'}"])
    return Bare(len(commands), str(client.script_load(text)))


def _word(word: str, arguments: dict[str, int]) -> str:
    for argument, number in arguments.items():
        if word == argument:
            return f"ARGV[{number}]"
        if word.endswith(f":{argument}"):
            return f"'{word.removesuffix(argument)}' .. ARGV[{number}]"
    return "'" + word.replace("'", "\\'") + "'"
