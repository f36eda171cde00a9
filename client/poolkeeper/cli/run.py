"""`poolkeeper run`: a command that waits for units, keeps them while it works, and releases them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import click

from poolkeeper.cli import options, param_types
from poolkeeper.cli.command_base import VerbCommand
from poolkeeper.cli.error_output import CommandError
from poolkeeper.cli.exit_codes import ExitCode
from poolkeeper.cli.submit_options import spec_of, submit_options

_OPTION = re.compile(r"--([a-z][a-z0-9_.-]{0,62})(?:=(.*))?", re.DOTALL)
_EXAMPLE = "poolkeeper run --component team-ml --gpu 1 -- python train.py"


class _RunCommand(VerbCommand):
    """A verb for which `--KEY N` is an amount unless it is an option, and everything after `--` is the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, with the amounts rewritten to --resource."""
        if not ctx.resilient_parsing and not _asks_for_help(args):
            args = _CommandLine(args, self.get_params(ctx), ctx).rewrite()
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the usage line with the amounts and the command."""
        return ["[--KEY N]… [OPTIONS]", "--", "COMMAND…"]


class _CommandLine:
    """The arguments, one by one."""

    def __init__(self, arguments: Sequence[str], params: Sequence[click.Parameter], ctx: click.Context) -> None:
        self._arguments, self._ctx = list(arguments), ctx
        self._takes_a_value = {
            name: not (option.is_flag or option.count)
            for option in params
            if isinstance(option, click.Option)
            for name in (*option.opts, *option.secondary_opts)
        }

    def rewrite(self) -> list[str]:
        """Return the arguments for click. Raise UsageError for a wrong amount, or if there is no command."""
        arguments = list(self._rewrite(iter(self._arguments))) if "--" in self._arguments else []
        if "--" not in arguments or arguments.index("--") == len(arguments) - 1:
            self._refuse(f"which command? It stands after a --, at the end: {_EXAMPLE}")
        return arguments

    def _rewrite(self, arguments: Iterator[str]) -> Iterator[str]:
        keys, has_unknown_option = set[str](), False
        for argument in arguments:
            option = _OPTION.fullmatch(argument)
            if argument == "--":
                yield "--"
                yield from arguments
            elif option and f"--{option[1]}" not in self._takes_a_value:
                if option[1] in keys:
                    self._refuse(f"--{option[1]} is given twice")
                keys.add(option[1])
                yield from ("--resource", self._amount(option[1], option[2], arguments))
            elif not (argument.startswith("-") or has_unknown_option):
                self._refuse(f"what is {argument}? The command stands after a --, at the end: {_EXAMPLE}")
            else:
                yield argument
                has_unknown_option = (
                    has_unknown_option or argument.partition("=")[0] not in self._takes_a_value
                )  # of which click will say so
                if self._takes_a_value.get(argument):
                    yield from (value for value in [next(arguments, None)] if value is not None)

    def _amount(self, key: str, value: str | None, arguments: Iterator[str]) -> str:
        """Return `gpu=2` for `--gpu 2` or `--gpu=2`."""
        similar = self._similar_options(key)
        suggestion = f" Did you mean {' or '.join(similar)}?" if similar else ""
        value = next(arguments, None) if value is None else value
        if similar and value is not None and _is_whole_number(value):
            self._refuse(f"no such option: --{key}.{suggestion} As an amount it is --resource {key}={value}")
        if value is None or value == "--" or not _is_whole_number(value):
            text = "nothing" if value in (None, "--") else value
            self._refuse(f"no such option: --{key}.{suggestion} (As an amount it needs a whole number after it, not {text})")
        return f"{key}={value}"

    def _similar_options(self, key: str) -> list[str]:
        max_distance = 1 if len(key) <= 5 else 2
        names = sorted(name for name in self._takes_a_value if name.startswith("--"))
        return [name for name in names if edit_distance(key, name[2:]) <= max_distance]

    def _refuse(self, message: str) -> NoReturn:
        raise click.UsageError(message, self._ctx)


def edit_distance(word: str, other: str) -> int:
    """Return how many letters have to be added, left out, replaced or swapped with the next to turn one word into the other."""
    before, row = [0] * (len(other) + 1), list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        last, before, row = before, row, [i]
        for j, opposite in enumerate(other, 1):
            fewest = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != opposite))
            if i > 1 and j > 1 and (letter, word[i - 2]) == (other[j - 2], opposite):
                fewest = min(fewest, last[j - 2] + 1)
            row.append(fewest)
    return row[-1]


def _is_whole_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _asks_for_help(args: Sequence[str]) -> bool:
    own = args[: args.index("--")] if "--" in args else args
    return any(word in ("-h", "--help") for word in own)


@click.command(
    "run",
    cls=_RunCommand,
    example="poolkeeper run --component team-ml --gpu 2 -- python train.py\n"
    "poolkeeper run --component team-ml --gpu 2 --mcpu 4000 --checkpoint auto --walltime 2h -- ./train.sh --epochs 9\n"
    "poolkeeper run --component team-ml --matlab=1 --timeout 10m -- matlab -batch report",
)
@submit_options
@click.option("--key", help="Idempotency key of the request, for one run at a time: a new one if not said.")
@click.option(
    "--timeout",
    type=param_types.Duration(),
    help="How long to wait at most, each time; then it leaves the queue (exit code 7).",
)
@click.option(
    "--on-lost", type=click.Choice(["stop", "keep"]), default="stop", help="What becomes of it without its units (stop)."
)
@click.option("--grace", type=param_types.Duration(), default="30s", help="From being stopped to SIGKILL (30s).")
@click.option("-q", "--quiet", is_flag=True, help="Say only what goes wrong.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(
    key: str | None, timeout: int | None, on_lost: str, grace: int, quiet: bool, command: tuple[str, ...], **values: Any
) -> None:
    """Wait for units, run a command as long as it holds them, give them back.

    --KEY N asks for an amount: --gpu 2, --mcpu 4000, --seats=3. The exit code is the command's, 128 and the signal's number if
    one ended it; 6 to 9, 126 and 127 are as in `poolkeeper --help`.

    \b
    When others need the units, the command gets
      SIGUSR1  save your work and end; with --checkpoint auto or manual
      SIGTERM  end now
      SIGKILL  shortly before its time is up
    and is started again when the units are there again. It says that its work is saved by
    `poolkeeper checkpoint done --reference WHERE`, or by writing to the file $POOLKEEPER_CHECKPOINT_FILE.
    """
    from poolkeeper import errors
    from poolkeeper.runner.guarded_process import CommandStartError
    from poolkeeper.runner.process_run import RunOptions
    from poolkeeper.runner.progress import Progress
    from poolkeeper.runner.run_loop import run as run_it
    from poolkeeper.runner.signals import Interrupted

    spec = spec_of(values)
    if key is not None and spec.get("lease_s", 0) is None:
        message = "--key needs a lease: without one nobody can tell whether another run of that key has died"
        raise click.UsageError(message, click.get_current_context())
    run_options = RunOptions(command, grace_s=grace, continues_when_lost=on_lost == "keep", timeout_s=timeout)
    try:
        code = run_it(options.client(), spec, key, run_options, Progress(quiet=quiet))
    except CommandStartError as error:
        raise CommandError(str(error), ExitCode(error.code)) from error
    except errors.RequestRejected as rejection:
        raise CommandError(str(rejection), ExitCode.REJECTED, _hints(rejection.request)) from rejection
    except errors.WaitTimeout as timeout_error:
        raise CommandError(str(timeout_error), ExitCode.TIMED_OUT) from timeout_error
    except errors.NotGranted as error:
        raise CommandError(str(error), ExitCode.ENDED) from error
    except errors.AllocationLost as loss:
        raise CommandError(str(loss), ExitCode.LOST) from loss
    except Interrupted as interruption:
        code = interruption.code
    click.get_current_context().exit(code)


def _hints(request: Any) -> list[str]:
    from poolkeeper.cli import suggestions

    reason: Mapping[str, Any] = {"code": request.reason.code, "pools": request.reason.pools} if request.reason else {}
    return suggestions.hints_of({"reason": reason, "component": request.component, "component_type": request.component_type})
