"""Asking a person before something is done that cannot be undone: on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

import click

from poolkeeper.formatting import printable


def is_confirmed(question: Callable[[], str]) -> bool:
    """Whether it shall be done: yes where nobody can be asked, as a script means what it says."""
    if not is_interactive():
        return True
    return click.confirm(printable(question()), default=False, err=True)


def is_interactive() -> bool:
    """Whether a question would be seen, and an answer could be typed."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether this is a terminal; a stream that was closed before we began is None."""
    return stream is not None and stream.isatty()
