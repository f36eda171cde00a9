"""Asking a person before something is done that cannot be undone: on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from poolkeeper.cli.text import printable


def agreed(question: Callable[[], str]) -> bool:
    """Whether it shall be done: yes where nobody can be asked, as a script means what it says."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    return click.confirm(printable(question()), default=False, err=True)
