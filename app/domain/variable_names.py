"""The names of the `POOLKEEPER_*` variables, and a refusal of every other one.

Server and client share no code, and one shell may hold the variables of both. So this file stands in both distributions, with
the same text; a test compares the two, and the settings with those of the service.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches

PREFIX = "POOLKEEPER_"
SETTINGS = (
    "REDIS_URL",
    "DATA_DIR",
    "APPENDFSYNC",
    "REDIS_TIMEOUT_S",
    "REPLICAS_ACKNOWLEDGE",
    "RECONCILE_INTERVAL_S",
    "SHARES_INTERVAL_S",
    "CLEANUP_INTERVAL_S",
    "AUDIT_INTERVAL_S",
    "HISTORY_INTERVAL_S",
    "HISTORY_KEPT",
    "RETENTION_S",
    "EVENTS_KEPT",
    "IDEMPOTENCY_TTL_S",
    "CHUNK",
    "LOG_LEVEL",
    "LOG_FORMAT",
    "ACCESS_LOG_SLOW_MS",
    "ACCESS_LOG_SAMPLE_PERCENT",
    "LOG_FILE_BYTES",
    "LOG_FILES_KEPT",
    "TRACES",
    "HOST",
    "PORT",
    "REQUIRE_TOKEN",
    "RATE_PER_S",
    "MAX_BODY_BYTES",
    "API_PROCESSES",
    "API_THREADS",
    "TOKEN_SHARE_PERCENT",
    "BROKER_URL",
    "WORKER_PROCESSES",
    "BROKERS",
)
"""The settings of the service."""
SERVICE = ("CONFIG", *SETTINGS)
CLIENT: Mapping[str, str] = {
    "URL": "URL of the service. Default: `http://127.0.0.1:8080`.",
    "TOKEN": "Secret of the token. It overrides `POOLKEEPER_TOKEN_FILE` and `poolkeeper login`.",
    "TOKEN_FILE": "Path of a file with nothing but the secret of the token.",
    "WORKSPACE": "Name of the workspace. Default: `default`.",
    "RECORD_ARGUMENTS": "If `0` or `false`, `run` records the program of its command without the arguments.",
    "TRACEBACK": "If set, `poolkeeper` shows the traceback of an unexpected error.",
}
"""The variables of clients, and their meaning as public text."""
RUN: Mapping[str, str] = {
    "REQUEST": "Id of the request.",
    "FENCE": "Fence of the allocation.",
    "POOL": "Pool of the allocation; empty if it is in none.",
    "RESUME": "`1` if the work is to resume from a checkpoint, else `0`.",
    "CHECKPOINT_REFERENCE": "Reference of the last completed checkpoint, to resume from; empty if there is none.",
    "CHECKPOINT_FILE": "Path of the file to write when the work is saved. Its first line is the reference of the checkpoint.",
    "RESOURCES": "All amounts, as `gpu=2,mcpu=4000`.",
}
"""The variables that `poolkeeper run` sets for its command, beside one for each amount, and their meaning as public text."""
AMOUNT = "AMOUNT_"
KNOWN = (*SERVICE, *CLIENT, *RUN)

_LINK_VALUE = re.compile(r"(tcp|udp|sctp)://\S+")
_LINK_SUFFIX = r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)?|NAME|ENV_\w+)"


def service_links(environ: Mapping[str, str]) -> set[str]:
    """Return the variables that Kubernetes, or an old Docker, set for a service with the name `poolkeeper` or `poolkeeper-…`.

    Such a service has either `…_SERVICE_HOST` with `…_SERVICE_PORT`, or `…_PORT=tcp://…`. A port as a number is a setting.
    """
    links = set()
    for name, value in environ.items():
        stem = name.removesuffix("SERVICE_HOST").removesuffix("PORT")
        if not stem.startswith(PREFIX) or stem == name:
            continue
        if (f"{stem}SERVICE_HOST" in environ and f"{stem}SERVICE_PORT" in environ) or _LINK_VALUE.fullmatch(value):
            pattern = re.compile(re.escape(stem) + _LINK_SUFFIX)
            links |= {link for link in environ if pattern.fullmatch(link)}
    return {name for name in links if name.removeprefix(PREFIX) not in KNOWN or _LINK_VALUE.fullmatch(environ[name])}


def refusal_of_unknown(environ: Mapping[str, str]) -> str | None:
    """Return a sentence that names every unknown `POOLKEEPER_*` variable, with the similar known one; None if all are known."""
    names = {name.removeprefix(PREFIX) for name in environ.keys() - service_links(environ) if name.startswith(PREFIX)}
    unknown = sorted(name for name in names if name not in KNOWN and not name.startswith(AMOUNT))
    return " ".join(map(_refusal, unknown)) or None


def _refusal(name: str) -> str:
    similar = get_close_matches(name.upper(), KNOWN, 1)
    hint = f"did you mean {PREFIX}{similar[0]}?" if similar else "variables of other programs need another prefix."
    return f"{PREFIX}{name}: there is no such variable; {hint}"
