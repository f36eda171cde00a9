"""The processes of the service: what each is started with.

They run in the folder of the packages and not where the command was given: gunicorn and Celery import from the current
folder first, and somebody's own `app` or `workers` in it would be taken for ours.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from app.settings import DEFAULT_FILE, Settings

ROOT = Path(__file__).resolve().parents[2]
CONFIG_FOLDERS = (DEFAULT_FILE.parent, ROOT / "app" / "config")
"""Where the files of `config/` are: beside the packages, or in one if they came as a wheel."""

_QUIETLY = ("--without-gossip", "--without-mingle", "--without-heartbeat")


def config_file(name: str) -> Path:
    """A file of `config/`, wherever it was installed; ValueError if it was not."""
    for folder in CONFIG_FOLDERS:
        if (folder / name).exists():
            return folder / name
    raise ValueError(f"the installation is not complete: {name} is not in {CONFIG_FOLDERS[0]}")


def commands() -> dict[str, tuple[str, ...]]:
    """Return the command of each process by its name."""
    return {name: (sys.executable, "-P", "-m", *words) for name, words in modules().items()}


def modules() -> dict[str, tuple[str, ...]]:
    """Return the module that each process runs, with its arguments, by the name of the process."""
    return {
        "api": ("gunicorn", "--config", str(config_file("gunicorn.conf.py")), "app.wsgi:application()"),
        "worker": ("workers", "worker", *_QUIETLY, "--hostname", "poolkeeper@%h"),
        "beat": ("workers", "beat", "--pidfile="),
    }


def environment(settings: Settings, config: Path | None, **overrides: object) -> dict[str, str]:
    """What a process is to know: the settings of here, with every path in full, and then `more` of them."""
    variables = {name: value for name, value in os.environ.items() if name != "GUNICORN_CMD_ARGS"}  # it would go before ours
    if named := config or variables.get("POOLKEEPER_CONFIG"):
        variables["POOLKEEPER_CONFIG"] = str(Path(named).expanduser().absolute())
    variables["POOLKEEPER_DATA_DIR"] = str(settings.data_dir.absolute())
    if settings.brokers:
        variables["POOLKEEPER_BROKERS"] = str(settings.brokers.absolute())
    return variables | {f"POOLKEEPER_{name.upper()}": str(value) for name, value in overrides.items()}
