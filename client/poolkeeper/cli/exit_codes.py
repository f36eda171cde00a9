"""Exit codes: a script can tell every end of the program apart. The help of `poolkeeper` lists them.

`poolkeeper run` exits as its command does, and with one of these only if the command did not end by itself.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """An end of the program."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    NOT_FOUND = 3
    DENIED = 4
    UNAVAILABLE = 5
    REJECTED = 6
    TIMED_OUT = 7
    ENDED = 8
    LOST = 9
    CHANGES = 10
    UNSTARTABLE = 126
    NO_COMMAND = 127
    INTERRUPTED = 130


MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "done",
    ExitCode.REFUSED: "refused: against the rules or the present state",
    ExitCode.USAGE: "wrong usage, or malformed input",
    ExitCode.NOT_FOUND: "not found: nothing has that name or id",
    ExitCode.DENIED: "not permitted, or the token is not valid",
    ExitCode.UNAVAILABLE: "the service cannot be reached or is overloaded",
    ExitCode.REJECTED: "the request was rejected: no pool can ever grant it",
    ExitCode.TIMED_OUT: "the wait timed out; the request stays queued (run: it is cancelled)",
    ExitCode.ENDED: "the request ended before this caller got its units: released, expired, cancelled or preempted",
    ExitCode.LOST: "run: the units were lost while the command ran: the lease lapsed, or an operator dropped the request",
    ExitCode.CHANGES: "plan --exit-code: there is something to change",
    ExitCode.UNSTARTABLE: "run: the command cannot be started",
    ExitCode.NO_COMMAND: "run: there is no such command",
    ExitCode.INTERRUPTED: "stopped by Ctrl-C",
}
"""The meaning of each exit code, for people."""


def as_table() -> str:
    """Return the table of the help page."""
    return "\n".join(f"{code.value:>5}  {meaning}" for code, meaning in MEANINGS.items())
