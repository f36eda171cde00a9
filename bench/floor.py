"""The floor: bare scripts that issue the same Redis commands as Poolkeeper's scripts in the same order, without logic.

The commands are recorded with MONITOR, so they are never out of date. The id of the request and the fence are arguments; all
other words are literal.
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
        """Call the script like Poolkeeper calls its own."""
        return client.evalsha(self.sha, 1, "pk:{bench}:", *args)


def issued(client: Redis, act: Callable[[], object]) -> list[Command]:
    """Return the commands that scripts issue while `act` runs."""
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
    """Return a script that issues the commands again. A word of `arguments` becomes the ARGV of its number."""
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
