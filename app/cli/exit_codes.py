"""Exit codes of `poolkeeperd`, for scripts to tell apart."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit code of a command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    DIFFERENCES = 3


MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "the command is done, or the process was told to stop",
    ExitCode.FAILED: "Redis cannot serve, or the command was refused",
    ExitCode.USAGE: "wrong usage, a wrong setting or variable, or an address that is not safe without a token",
    ExitCode.DIFFERENCES: "`audit`: something differs and was not repaired",
}
"""Exit code → its meaning, as public text."""
