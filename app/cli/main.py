"""`poolkeeperd`: the commands of the service. A set-up error is one line and an exit code: 2 for a wrong setting, else 1."""

from __future__ import annotations

import click

from app.cli.maintenance import audit, tidy
from app.cli.serve import api, beat, worker
from app.cli.token import token
from app.cli.up import up


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="poolkeeper-server", message="poolkeeperd %(version)s")
def main() -> None:
    """Run and maintain Poolkeeper, which shares scarce capacity between the teams of an ML platform.

    Without POOLKEEPER_REDIS_URL, Poolkeeper starts an embedded Redis, which keeps its data in POOLKEEPER_DATA_DIR (./data).
    """


for command in (up, api, worker, beat, token, tidy, audit):
    main.add_command(command)
