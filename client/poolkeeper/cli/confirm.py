"""Confirmation of a change that cannot be undone: on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

import click

from poolkeeper.formatting import printable


def is_confirmed(question: Callable[[], str]) -> bool:
    """True if the user confirms the change, or if there is no terminal."""
    if not is_interactive():
        return True
    return click.confirm(printable(question()), default=False, err=True)


def is_interactive() -> bool:
    """True if a question can be seen and answered."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def is_terminal(stream: TextIO | None) -> bool:
    """True if this is a terminal; a stream that was closed before the start is None."""
    return stream is not None and stream.isatty()
