"""The environment of the command."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from poolkeeper import variable_names
from poolkeeper.runner.checkpoint_files import FILE_VARIABLE

if TYPE_CHECKING:
    from poolkeeper.client import Client
    from poolkeeper.models import Request

AMOUNT_PREFIX = variable_names.PREFIX + variable_names.AMOUNT


def command_environment(
    inherited: Mapping[str, str],
    client: Client,
    request: Request,
    checkpoint_path: Path,
    *,
    resume: bool,
    reference: str | None,
) -> dict[str, str]:
    """Return the variables of `run`, and those that describe the allocation and the checkpoint to resume from.

    The address of the service and the workspace are those that `run` uses. A token on the command line of `run` is not passed
    to the command, because other users of the machine may see its environment.
    """
    outer_run = {f"POOLKEEPER_{name}" for name in variable_names.RUN}
    base = {name: text for name, text in inherited.items() if name not in outer_run and not name.startswith(AMOUNT_PREFIX)}
    variables = {
        "POOLKEEPER_URL": client.url,
        "POOLKEEPER_WORKSPACE": client.workspace,
        "POOLKEEPER_REQUEST": request.id,
        "POOLKEEPER_FENCE": str(request.fence),
        "POOLKEEPER_POOL": request.pool or "",
        "POOLKEEPER_RESUME": "1" if resume else "0",
        "POOLKEEPER_CHECKPOINT_REFERENCE": (reference or "").replace("\0", ""),
        FILE_VARIABLE: str(checkpoint_path),
        "POOLKEEPER_RESOURCES": ",".join(f"{key}={amount}" for key, amount in request.resources.items()),
    }
    return base | variables | {amount_variable(key): str(amount) for key, amount in request.resources.items()}


def amount_variable(key: str) -> str:
    """Return the variable of a key: `gpu` → `POOLKEEPER_AMOUNT_GPU`. A dot or hyphen becomes an underscore."""
    return AMOUNT_PREFIX + re.sub(r"[.-]", "_", key).upper()
