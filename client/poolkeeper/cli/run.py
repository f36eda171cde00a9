"""`poolkeeper run`: a command that waits for units, keeps them while it works, and releases them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import click

from poolkeeper.cli import options, param_types
from poolkeeper.cli.amount_options import AmountCommand, AmountShorthand, split_arguments
from poolkeeper.cli.error_output import CommandError
from poolkeeper.cli.exit_codes import ExitCode
from poolkeeper.cli.submit_options import spec_of, submit_options

_EXAMPLE = "poolkeeper run --component team-ml --gpu 1 -- python train.py"


class _RunCommand(AmountCommand):
    """A verb with amounts; the arguments after `--` are the command."""

    def rewrite(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the arguments for click. Raise UsageError for a wrong amount, or if there is no command."""
        own, command = split_arguments(args)

        def refuse_word(word: str) -> NoReturn:
            raise click.UsageError(f"unexpected argument {word}: the command stands at the end, after --: {_EXAMPLE}", ctx)

        shorthand = AmountShorthand(ctx, self.get_params(ctx), self.amounts, refuse_word)
        arguments = list(shorthand.rewrite(own)) if command else []
        if len(command) < 2:
            raise click.UsageError(f"the command is missing: it stands at the end, after --: {_EXAMPLE}", ctx)
        return [*arguments, *command]

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the usage line with the amounts and the command."""
        return ["[--KEY N]…", "[OPTIONS]", "--", "COMMAND…"]


@click.command(
    "run",
    cls=_RunCommand,
    example="poolkeeper run --component team-ml --gpu 2 -- python train.py\n"
    "poolkeeper run --component team-ml --gpu 2 --mcpu 4000 --checkpoint auto --walltime 2h -- ./train.sh --epochs 9\n"
    "poolkeeper run --component team-ml --matlab=1 --timeout 10m -- matlab -batch report",
)
@submit_options
@click.option("--key", help="Idempotency key of the request, for one run at a time (default: a new key).")
@click.option(
    "--timeout",
    type=param_types.Duration(),
    help="Longest wait each time it is queued; after it the request is cancelled (exit code 7).",
)
@click.option(
    "--on-lost",
    type=click.Choice(["stop", "keep"]),
    default="stop",
    help="Stop the command if its units are lost, or keep it running (default: stop).",
)
@click.option(
    "--grace",
    type=param_types.Duration(),
    default="30s",
    help="Time to SIGKILL after a signal to `run`, or after the work is saved (default: 30s).",
)
@click.option(
    "--record-arguments/--no-record-arguments",
    default=True,
    envvar="POOLKEEPER_RECORD_ARGUMENTS",
    show_envvar=True,
    help="Record the program with its arguments in the label `command`, or only the program.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print only warnings and errors.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(
    key: str | None,
    timeout: int | None,
    on_lost: str,
    grace: int,
    record_arguments: bool,
    quiet: bool,
    command: tuple[str, ...],
    **values: Any,
) -> None:
    """Wait for units, run a command while it holds them, and release them.

    --KEY N asks for an amount: --gpu 2, --mcpu 4000, --seats=3. The exit code is that of the command, or 128 plus the number of
    the signal that ended it; 6 to 9, 126 and 127 are as in `poolkeeper --help`.

    \b
    If other requests need the units, the command gets
      SIGUSR1  save the work and end; with --checkpoint auto or manual
      SIGTERM  end now
      SIGKILL  shortly before the deadline
    and is started again after the next grant. To report that its work is saved, it calls
    `poolkeeper checkpoint done --reference WHERE`, or writes to the file $POOLKEEPER_CHECKPOINT_FILE.

    The request gets the labels user, host, pid and command, unless --label gives them. Arguments that look like secrets are
    masked; not every secret can be recognised.

    A command with a checkpoint may be preempted any number of times, any other command three times. --retries changes that.
    """
    from poolkeeper import errors
    from poolkeeper.runner.guarded_process import CommandStartError
    from poolkeeper.runner.origin_labels import with_origin
    from poolkeeper.runner.process_run import RunOptions
    from poolkeeper.runner.progress import Progress
    from poolkeeper.runner.run_loop import run as run_it
    from poolkeeper.runner.signals import Interrupted

    spec = spec_of(values)
    if key is not None and spec.get("lease_s", 0) is None:
        message = "--key needs a lease: without one, the end of an earlier run with this key cannot be noticed"
        raise click.UsageError(message, click.get_current_context())
    if spec.get("checkpoint") in ("manual", "auto"):
        spec.setdefault("retries", -1)  # its work is saved, so a further preemption costs little
    spec = with_origin(spec, command, has_arguments=record_arguments, has_pid=key is None)
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
