"""What the command finds in its environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from poolkeeper.runner.checkpoint_files import VARIABLE

if TYPE_CHECKING:
    from poolkeeper.client import Client
    from poolkeeper.models import Request

OWN = ("REQUEST", "FENCE", "POOL", "RESUME", "CHECKPOINT_REFERENCE", "CHECKPOINT_FILE", "RESOURCES")
AMOUNT = "POOLKEEPER_AMOUNT_"


def environment(
    before: Mapping[str, str], client: Client, request: Request, path: Path, *, resume: bool, reference: str | None
) -> dict[str, str]:
    """The variables of `run`, and those that say what is held and from where to go on.

    The service's address and the workspace are those that `run` uses; a token that `run` was given in its own words is not
    passed on, as whoever sees the command's environment would see it.
    """
    of_another_run = {f"POOLKEEPER_{name}" for name in OWN}
    kept = {name: text for name, text in before.items() if name not in of_another_run and not name.startswith(AMOUNT)}
    said = {
        "POOLKEEPER_URL": client.url,
        "POOLKEEPER_WORKSPACE": client.workspace,
        "POOLKEEPER_REQUEST": request.id,
        "POOLKEEPER_FENCE": str(request.fence),
        "POOLKEEPER_POOL": request.pool or "",
        "POOLKEEPER_RESUME": "1" if resume else "0",
        "POOLKEEPER_CHECKPOINT_REFERENCE": (reference or "").replace("\0", ""),
        VARIABLE: str(path),
        "POOLKEEPER_RESOURCES": ",".join(f"{key}={amount}" for key, amount in request.resources.items()),
    }
    return kept | said | {amount_variable(key): str(amount) for key, amount in request.resources.items()}


def amount_variable(key: str) -> str:
    """`gpu` → `POOLKEEPER_AMOUNT_GPU`; what no variable's name may have becomes an underscore."""
    return AMOUNT + re.sub(r"[.-]", "_", key).upper()
