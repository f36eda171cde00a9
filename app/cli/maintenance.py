"""`poolkeeperd tidy` and `audit`: the periodic jobs of the workers by hand, and the repair, which is done only by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from app.bootstrap import open_services
from app.cli.context import CONFIG, read_settings, report_errors
from app.cli.exit_codes import ExitCode


@click.command()
@CONFIG
@click.argument("workspaces", nargs=-1)
@click.option("--repair", is_flag=True, help="Repair what differs.")
def audit(config: Path | None, workspaces: tuple[str, ...], repair: bool) -> None:
    """Compare accounts and queues with the requests. Audit WORKSPACES (default: all), and list what differs.

    Exit code 0: nothing differs, or all was repaired. 3: something differs.
    """
    difference_count = 0
    with report_errors(), open_services(read_settings(config), existing=True) as context:
        existing = context.services.workspaces.list_names()
        if unknown := [workspace for workspace in workspaces if workspace not in existing]:
            raise ValueError(f"there is no workspace {', '.join(unknown)}; there are: {', '.join(existing) or 'none'}")
        for workspace in workspaces or existing:
            findings = context.services.audit.run(workspace, repair=repair)
            for difference in findings:
                click.echo(f"{workspace}: {difference}")
            click.echo(f"{workspace}: {len(findings)} differences{' repaired' if findings and repair else ''}")
            difference_count += len(findings)
    if difference_count and not repair:
        sys.exit(ExitCode.DIFFERENCES)


@click.command()
@CONFIG
def tidy(config: Path | None) -> None:
    """Run one cleanup of every workspace. It ends lapsed leases and waiters that are not polled, gives patience holds, deletes
    old requests, and resumes unfinished work."""
    with report_errors(), open_services(read_settings(config), existing=True) as context:
        counts_by_workspace = context.services.cleanup.run_all()
        for workspace, counts in counts_by_workspace.items():
            click.echo(
                f"{workspace}: {counts.expired_leases} leases lapsed, "
                f"{counts.expired_waiters} waiters expired, {counts.pruned_requests} ended requests deleted"
            )
        if len(counts_by_workspace) < len(context.services.workspaces.list_names()):
            raise ValueError("the cleanup of some workspaces failed; the errors are above")
