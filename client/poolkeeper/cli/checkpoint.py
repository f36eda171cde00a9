"""`poolkeeper checkpoint`: reports of a command of `poolkeeper run` about its checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from poolkeeper.cli import options, output
from poolkeeper.cli.command_base import NounGroup
from poolkeeper.cli.error_output import CommandError
from poolkeeper.runner.checkpoint_files import FILE_VARIABLE, CheckpointReport, write_report

checkpoint = NounGroup(
    "checkpoint", help="Checkpoints: reports of a command of `poolkeeper run` that its work is saved, or will be."
)


@checkpoint.command(
    "done",
    example="poolkeeper checkpoint done\npoolkeeper checkpoint done --reference s3://runs/42/step-9000",
)
@click.option("--reference", help="Reference to resume from: POOLKEEPER_CHECKPOINT_REFERENCE of the next start.")
def done(reference: str | None) -> None:
    """Report that the work is saved. A command that was told to leave needs to do no more."""
    _send(CheckpointReport("completed", reference))


@checkpoint.command("progress", example="poolkeeper checkpoint progress")
def progress() -> None:
    """Report that the work is being saved. If that takes too long, the deadline is extended once, by half of the time."""
    _send(CheckpointReport("progress"))


@checkpoint.command("failed", example="poolkeeper checkpoint failed")
def failed() -> None:
    """Report that the work cannot be saved. A command that was told to leave has to end now."""
    _send(CheckpointReport("failed"))


def _send(report: CheckpointReport) -> None:
    """Send a report to `run` in its file; without a file, to the service."""
    if file := os.environ.get(FILE_VARIABLE):
        _write(Path(file), report)
        return
    request, fence = os.environ.get("POOLKEEPER_REQUEST"), os.environ.get("POOLKEEPER_FENCE", "")
    if not (request and fence.isascii() and fence.isdigit()):
        raise click.UsageError(
            f"this is for a command of `poolkeeper run`: neither {FILE_VARIABLE} nor POOLKEEPER_REQUEST is set",
            click.get_current_context(),
        )
    body: dict[str, Any] = {"fence": int(fence), "state": report.state}
    heartbeat = options.call(
        "POST",
        options.path("requests", request, "checkpoint"),
        body=body | ({"reference": report.reference} if report.reference else {}),
    )
    output.show_result(heartbeat, request, f"request {request}: {heartbeat['directive'] or 'it has left'}")


def _write(file: Path, report: CheckpointReport) -> None:
    if report.reference and report.reference.splitlines() != [report.reference]:
        raise click.UsageError("a reference is one line", click.get_current_context())
    try:
        write_report(file, report)
    except OSError as error:
        raise CommandError(f"`poolkeeper run` does not read {file} any more: {error.strerror}") from error
