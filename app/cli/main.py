"""`poolkeeperd`: the service's own commands. Errors of set-up are one line and an exit code: 2 for a wrong setting, 1 else."""

from __future__ import annotations

import click

from app.cli.maintenance import audit, tidy
from app.cli.serve import api, beat, worker
from app.cli.token import token
from app.cli.up import up


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="poolkeeper-server", message="poolkeeperd %(version)s")
def main() -> None:
    """Poolkeeper shares scarce capacity between the teams of an ML platform.

    Without POOLKEEPER_REDIS_URL an embedded Redis is started, which keeps its data in POOLKEEPER_DATA_DIR (./data).
    """


for command in (up, api, worker, beat, token, tidy, audit):
    main.add_command(command)
