"""What can go wrong, in one or two lines on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from poolkeeper.cli.exit_codes import Exit
from poolkeeper.formatting import printable

PROGRAM = "poolkeeper"

WHERE = ["where is it? --url, POOLKEEPER_URL, or `poolkeeper login --url …` once"]
HINTS = {
    "no_token": ["`poolkeeper login` keeps one; POOLKEEPER_TOKEN goes before it"],
    "unknown_token": ["`poolkeeper login` keeps another; POOLKEEPER_TOKEN goes before it"],
    "unreachable": WHERE,
    "no_tls": WHERE,
    "not_http": WHERE,
    "no_such_route": ["is the URL right? --url, POOLKEEPER_URL: http://host:port, without the path of a page"],
    "not_queued": ["who holds units gives them back by `poolkeeper request release`"],
}
"""What helps with some refusals, by their code."""

LOST = ["an answer was lost on the way, so an earlier try may have done it: look before you go on"]
BUG = ["is there a Poolkeeper at that address? POOLKEEPER_TRACEBACK=1 shows where it went wrong"]


class Failed(click.ClickException):
    """The program itself says no: a sentence, an exit code, and perhaps what would help."""

    def __init__(self, message: str, code: Exit = Exit.REFUSED, hints: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code, self.hints = code, hints


def is_bug(wrong: Exception) -> bool:
    """Whether this is nothing that anybody meant to say."""
    from poolkeeper.errors import PoolkeeperError

    return not isinstance(wrong, (click.ClickException, click.exceptions.Abort, PoolkeeperError))


def told(wrong: Exception) -> int:
    """Say what is wrong; the answer is how the program ends."""
    if isinstance(wrong, click.exceptions.Abort):
        if wrong.__cause__ is None:  # from a prompt, whose line is still open
            click.echo(err=True)
        return Exit.INTERRUPTED
    if isinstance(wrong, click.exceptions.NoArgsIsHelpError):
        wrong.show()
        return Exit.USAGE
    if isinstance(wrong, click.UsageError):
        return _say(Exit.USAGE, wrong.format_message(), *_where_to_read(wrong))
    if isinstance(wrong, Failed):
        return _say(wrong.code, wrong.message, *wrong.hints)
    if isinstance(wrong, click.ClickException):
        return _say(Exit.USAGE, wrong.format_message())
    return _of_the_service(wrong)


def _of_the_service(wrong: Exception) -> int:
    from poolkeeper import errors

    if isinstance(wrong, errors.Refused):
        hints = [
            *_fields(wrong),
            *getattr(wrong, "hints", ()),
            *HINTS.get(wrong.code, ()),
            *(LOST if wrong.lost else ()),
        ]
        return _say(_code(wrong), _detail(wrong), *hints)
    if isinstance(wrong, errors.PoolkeeperError):
        return _say(Exit.USAGE if isinstance(wrong, errors.WrongUrl) else Exit.REFUSED, str(wrong))
    return _say(Exit.REFUSED, f"this should not have happened: {type(wrong).__name__}: {wrong}", *BUG)


def _code(refused: Any) -> Exit:
    from poolkeeper import errors

    kinds = {
        errors.NotFound: Exit.NOT_FOUND,
        errors.Denied: Exit.DENIED,
        errors.Malformed: Exit.USAGE,
        errors.TooManyRequests: Exit.UNAVAILABLE,
        errors.Unavailable: Exit.UNAVAILABLE,
    }
    return next((code for kind, code in kinds.items() if isinstance(refused, kind)), Exit.REFUSED)


def _detail(refused: Any) -> str:
    """The sentence; where the fields are listed below it, without them."""
    detail = str(refused.detail or refused)
    return detail.partition(": ")[0] if refused.errors else detail


def _fields(refused: Any) -> list[str]:
    return [f"{fault.get('field') or 'body'}: {fault.get('reason', '')}" for fault in refused.errors or []]


def _where_to_read(wrong: click.UsageError) -> list[str]:
    return [f"see: {wrong.ctx.command_path} --help"] if wrong.ctx else []


def _say(code: Exit, message: str, *hints: str) -> int:
    say(f"{PROGRAM}: {message}")
    for hint in hints:
        say(f"  {hint}")
    return code


def say(message: str) -> None:
    """A line for people, on stderr."""
    click.echo(printable(message), err=True)


def stop_writing() -> None:
    """Nobody reads stdout any more: what is still in its buffer goes nowhere, silently."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
