"""What the command finds in its environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from poolkeeper.runner.checkpoint_files import FILE_VARIABLE

if TYPE_CHECKING:
    from poolkeeper.client import Client
    from poolkeeper.models import Request

RUN_VARIABLES = ("REQUEST", "FENCE", "POOL", "RESUME", "CHECKPOINT_REFERENCE", "CHECKPOINT_FILE", "RESOURCES")
AMOUNT_PREFIX = "POOLKEEPER_AMOUNT_"


def command_environment(
    inherited: Mapping[str, str],
    client: Client,
    request: Request,
    checkpoint_path: Path,
    *,
    resume: bool,
    reference: str | None,
) -> dict[str, str]:
    """The variables of `run`, and those that say what is held and from where to go on.

    The service's address and the workspace are those that `run` uses; a token that `run` was given in its own words is not
    passed on, as whoever sees the command's environment would see it.
    """
    outer_run = {f"POOLKEEPER_{name}" for name in RUN_VARIABLES}
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
    """`gpu` → `POOLKEEPER_AMOUNT_GPU`; what no variable's name may have becomes an underscore."""
    return AMOUNT_PREFIX + re.sub(r"[.-]", "_", key).upper()
