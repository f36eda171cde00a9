"""Errors: one or two lines on stderr, and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from poolkeeper.cli.exit_codes import ExitCode
from poolkeeper.formatting import printable

PROGRAM = "poolkeeper"

ADDRESS_HINTS = [
    "check that the service runs there, or give its address: --url, POOLKEEPER_URL, or `poolkeeper login --url …` once"
]
HINTS_BY_CODE = {
    "no_token": ["`poolkeeper login` stores one; POOLKEEPER_TOKEN takes precedence"],
    "unknown_token": ["`poolkeeper login` stores another one; POOLKEEPER_TOKEN takes precedence"],
    "unreachable": ADDRESS_HINTS,
    "no_tls": ADDRESS_HINTS,
    "not_http": ADDRESS_HINTS,
    "no_such_route": ["check --url or POOLKEEPER_URL: http://host:port, without the path of a page"],
    "no_such_request": ["`poolkeeper request list --all` lists the requests that are kept"],
    "not_queued": ["`poolkeeper request release` returns the units of an allocation"],
}
"""Code of a refusal → hints for the user."""

ANSWER_LOST_HINTS = ["the answer to an earlier try was lost, so the change may be made already: check before you repeat it"]
BUG_HINTS = ["check that Poolkeeper answers at that address; POOLKEEPER_TRACEBACK=1 prints the traceback"]


class CommandError(click.ClickException):
    """An error of the program itself: a sentence, an exit code, and hints."""

    def __init__(self, message: str, code: ExitCode = ExitCode.REFUSED, hints: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code, self.hints = code, hints


def is_bug(error: Exception) -> bool:
    """True if no code raises the exception on purpose."""
    from poolkeeper.errors import PoolkeeperError

    return not isinstance(error, (click.ClickException, click.exceptions.Abort, PoolkeeperError))


def report(error: Exception) -> int:
    """Print the error, and return the exit code."""
    if isinstance(error, click.exceptions.Abort):
        if error.__cause__ is None:  # from a prompt, whose line is still open
            click.echo(err=True)
        return ExitCode.INTERRUPTED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return ExitCode.USAGE
    if isinstance(error, click.UsageError):
        return _print_error(ExitCode.USAGE, error.format_message(), *_help_hint(error))
    if isinstance(error, CommandError):
        return _print_error(error.code, error.message, *error.hints)
    if isinstance(error, click.ClickException):
        return _print_error(ExitCode.USAGE, error.format_message())
    return _report_service_error(error)


def _report_service_error(error: Exception) -> int:
    from poolkeeper import errors

    if isinstance(error, errors.ApiError):
        hints = [
            *_field_lines(error),
            *getattr(error, "hints", ()),
            *([str(hint)] if (hint := error.problem.get("hint")) else ()),
            *HINTS_BY_CODE.get(error.code, ()),
            *(ANSWER_LOST_HINTS if error.answer_lost else ()),
        ]
        return _print_error(exit_code(error), _detail(error), *hints)
    if isinstance(error, errors.PoolkeeperError):
        return _print_error(ExitCode.USAGE if isinstance(error, errors.InvalidUrl) else ExitCode.REFUSED, str(error))
    return _print_error(ExitCode.REFUSED, f"unexpected error: {type(error).__name__}: {error}", *BUG_HINTS)


def exit_code(error: Any) -> ExitCode:
    """Return the exit code of an error of the service."""
    from poolkeeper import errors

    kinds = {
        errors.NotFound: ExitCode.NOT_FOUND,
        errors.AccessDenied: ExitCode.DENIED,
        errors.BadRequest: ExitCode.USAGE,
        errors.TooManyRequests: ExitCode.UNAVAILABLE,
        errors.Unavailable: ExitCode.UNAVAILABLE,
    }
    return next((code for kind, code in kinds.items() if isinstance(error, kind)), ExitCode.REFUSED)


def _detail(error: Any) -> str:
    """Return the sentence, without its fields if they are listed below it."""
    detail = str(error.detail or error)
    return detail.partition(": ")[0] if error.errors else detail


def _field_lines(error: Any) -> list[str]:
    return [f"{fault.get('field') or 'body'}: {fault.get('reason', '')}" for fault in error.errors or []]


def _help_hint(error: click.UsageError) -> list[str]:
    return [f"see: {error.ctx.command_path} --help"] if error.ctx else []


def _print_error(code: ExitCode, message: str, *hints: str) -> int:
    print_message(f"{PROGRAM}: {message}")
    for hint in hints:
        print_message(f"  {hint}")
    return code


def print_message(message: str) -> None:
    """Print a line for people on stderr."""
    click.echo(printable(message), err=True)


def discard_stdout() -> None:
    """Discard the buffer of stdout, whose reader is gone, without an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
