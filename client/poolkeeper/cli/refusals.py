"""What can go wrong, in one or two lines on stderr and an exit code; with names that are near to one that is not there."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from poolkeeper.cli.exits import Exit
from poolkeeper.cli.options import client, path
from poolkeeper.cli.text import printable

PROGRAM = "poolkeeper"

HINTS = {
    "no_token": ["`poolkeeper login` keeps one; POOLKEEPER_TOKEN goes before it"],
    "unknown_token": ["`poolkeeper login` keeps another; POOLKEEPER_TOKEN goes before it"],
    "unreachable": ["where is it? --url, POOLKEEPER_URL, or `poolkeeper login --url …` once"],
    "not_queued": ["who holds units gives them back by `poolkeeper request release`"],
}
"""What helps with some refusals, by their code."""

REPEATED = ["an answer was lost on the way, so an earlier try may have done it: look before you go on"]
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
            *(REPEATED if wrong.repeated else ()),
        ]
        return _say(_code(wrong), _detail(wrong), *hints)
    if isinstance(wrong, errors.PoolkeeperError):
        return _say(Exit.REFUSED, str(wrong))
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


def add_near_names(missing: Any, params: Mapping[str, Any]) -> None:
    """Add to what was not found the names that look like it."""
    asked, known = _asked_and_known(missing, params)
    if asked is None:
        return
    from difflib import get_close_matches

    if near := get_close_matches(asked, known, cutoff=0.5):
        missing.hints = [f"did you mean {' or '.join(near)}?"]
    elif known:
        missing.hints = [f"there are: {', '.join(known[:10])}{' …' if len(known) > 10 else ''}"]


def _asked_and_known(missing: Any, params: Mapping[str, Any]) -> tuple[str | None, list[str]]:
    code, pool, component = missing.code, params.get("pool"), params.get("component")
    if code == "no_such_pool" and pool:
        return pool, _names("name", "pools")
    if code == "no_such_policy" and pool and component:
        return _bare(component), _names("component", "pools", pool, "policies")
    group = next((name for name in (params.get("group"), params.get("parent")) if name and name in missing.detail), None)
    if code == "no_such_group" and pool and group:
        return group, _names("name", "pools", pool, "groups")
    return None, []


def _bare(component: Any) -> str:
    return str(component[1] if isinstance(component, tuple) else component)


def _names(field: str, *parts: str) -> list[str]:
    """The names there are; none if they cannot be had just now."""
    from poolkeeper.errors import PoolkeeperError

    try:
        return sorted({item[field] for item in client(timeout_s=3, tries=1).items(path(*parts))})
    except PoolkeeperError:
        return []
