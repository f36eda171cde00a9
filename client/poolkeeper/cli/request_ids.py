"""Request ids on the command line: full, as a unique beginning or end of at least four characters, or `--last`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import click

from poolkeeper import formatting
from poolkeeper.cli import options
from poolkeeper.cli.error_output import CommandError, print_message
from poolkeeper.cli.exit_codes import ExitCode
from poolkeeper.cli.param_types import RequestId
from poolkeeper.request_origin import short_id, title
from poolkeeper.runner.origin_labels import user_name

ID_LENGTH = 20
MIN_FRAGMENT = 4
MAX_CANDIDATES = 10
"""The most candidates that are listed for an ambiguous fragment."""
MAX_SEARCHED = 200
"""The number of newest requests that `--last` examines."""
LIST_HINT = "`poolkeeper request list --all` lists the requests that are kept"
_FRAGMENT = re.compile(r"[0-9a-hjkmnp-tv-z]+")
"""The characters of an id: digits, and the letters but i, l, o and u."""
_LAST = f"{__name__}.last"

Function = TypeVar("Function", bound=Callable[..., Any])


def id_argument(kind: RequestId) -> Callable[[Function], Function]:
    """Return the decorator of a command that takes the id of a request, or `--last`."""

    def decorate(function: Function) -> Function:
        return click.argument("request", metavar="ID", type=kind, required=False)(last_option(function))

    return decorate


def last_option(function: Function) -> Function:
    """Add the option `--last` to a command with a parameter `request`."""
    return click.option(
        "--last",
        is_flag=True,
        expose_value=False,
        callback=_store_last,
        help="Instead of ID: the newest request with your name in the label user, or without this label; not of a task.",
    )(function)


def _store_last(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.meta[_LAST] = value


def resolve(ctx: click.Context, params: Sequence[click.Parameter]) -> None:
    """Replace a short id among the values of a command, or `--last`, by the full id. A full id needs no call."""
    for param in params:
        if isinstance(param.type, RequestId):
            name = str(param.name)
            ctx.params[name] = _full_id_or_none(ctx, param, ctx.params[name])


def _full_id_or_none(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    if ctx.meta.get(_LAST):
        if text is not None:
            raise click.UsageError(f"--last and the id {text} exclude each other", ctx)
        return newest_id()
    if text is None:
        if isinstance(param, click.Argument):
            raise click.UsageError("Missing argument 'ID'; --last takes your newest request.", ctx)
        return None
    return full_id(text)


def full_id(text: str) -> str:
    """Return the only id that begins or ends with a text. Raise CommandError if there is none, or more than one.

    A text that cannot be a part of an id is returned as it is: the service refuses it.
    """
    fragment = text.lower()
    if len(text) >= ID_LENGTH or not _FRAGMENT.fullmatch(fragment):
        return text
    if len(fragment) < MIN_FRAGMENT:
        raise CommandError(
            f"{text} is too short: an id is its beginning or end of at least {MIN_FRAGMENT} characters", ExitCode.USAGE
        )
    rows = list(islice(_requests(MAX_CANDIDATES + 1, id=fragment), MAX_CANDIDATES + 1))
    if not rows:
        message = f"there is no request {text}: no id begins or ends with it"
        raise CommandError(message, ExitCode.NOT_FOUND, [LIST_HINT])
    if len(rows) > 1:
        count = f"more than {MAX_CANDIDATES}" if len(rows) > MAX_CANDIDATES else str(len(rows))
        message = f"{text} is ambiguous: it is the beginning or the end of {count} ids"
        raise CommandError(message, ExitCode.USAGE, [_candidate(row) for row in rows[:MAX_CANDIDATES]])
    return str(rows[0]["id"])


def _candidate(row: Mapping[str, Any]) -> str:
    """Return a request in one line: short id, name, component and state."""
    words = [title(row.get("name"), row["labels"]), formatting.component(row), row["status"]]
    return formatting.one_line(f"{short_id(row['id'])}: {', '.join(filter(None, words))}")


def newest_id() -> str:
    """Return the id of the newest request that may be of this user, and name it on stderr.

    It has the label `user` with the name of this user, as `run` writes it, or no such label; and it is no task.
    """
    user = user_name()
    rows = islice(_requests(MAX_SEARCHED), MAX_SEARCHED)
    newest = next((row for row in rows if row["labels"].get("user", user) == user and not row.get("task")), None)
    if newest is None:
        message = f"there is no request of {user} among the newest {MAX_SEARCHED}; tasks do not count"
        raise CommandError(message, ExitCode.NOT_FOUND, [LIST_HINT])
    if not options.current_options().for_programs:
        print_message(f"the newest request: {_candidate(newest)}")
    return str(newest["id"])


def _requests(page: int, **query: str) -> Iterator[dict[str, Any]]:
    return options.client().items("/requests", query=query, page=page)
