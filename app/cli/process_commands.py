"""The processes of the service: their commands and environment.

They run in the folder of the packages, not in the current folder: gunicorn and Celery import from the current folder first, and
would import another package `app` or `workers` from there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from app.settings import DEFAULT_FILE, Settings

ROOT = Path(__file__).resolve().parents[2]
CONFIG_FOLDERS = (DEFAULT_FILE.parent, ROOT / "app" / "config")
"""The places of the files of `config/`: beside the packages, or inside `app` if installed from a wheel."""

_QUIETLY = ("--without-gossip", "--without-mingle", "--without-heartbeat")


def config_file(name: str) -> Path:
    """Return the path of a file of `config/`. Raise ValueError if it is not installed."""
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
    """Return the environment of a process: these settings with absolute paths, and the overrides."""
    variables = {name: value for name, value in os.environ.items() if name != "GUNICORN_CMD_ARGS"}  # it would override ours
    if named := config or variables.get("POOLKEEPER_CONFIG"):
        variables["POOLKEEPER_CONFIG"] = str(Path(named).expanduser().absolute())
    variables["POOLKEEPER_DATA_DIR"] = str(settings.data_dir.absolute())
    if settings.brokers:
        variables["POOLKEEPER_BROKERS"] = str(settings.brokers.absolute())
    return variables | {f"POOLKEEPER_{name.upper()}": str(value) for name, value in overrides.items()}
