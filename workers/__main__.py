"""The worker and beat as programs: `python -m workers worker …` is `celery --quiet --app workers.celery_app worker …`.

Celery's own program imports all of its commands, and with them a library for prompts: 10 MB that neither process needs.
"""

from __future__ import annotations

import sys

from celery.bin.base import CLIContext
from celery.bin.beat import beat
from celery.bin.worker import worker

from workers.celery_app import app

COMMANDS = {"worker": worker, "beat": beat}


def main() -> None:
    """Run the command that the first argument names, with the options of Celery's command of that name."""
    name, *options = sys.argv[1:]
    context = CLIContext(app=app, no_color=True, workdir=None, quiet=True)
    COMMANDS[name].main(options, prog_name=f"workers {name}", obj=context)


if __name__ == "__main__":
    main()
