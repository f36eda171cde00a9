"""The labels by which `run` names the origin of a request: user, host, process id and command."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from poolkeeper.formatting import one_line
from poolkeeper.runner.secret_arguments import MAX_LENGTH, command_line

MAX_LABELS = 32
"""The most labels of a request."""


def with_origin(body: Mapping[str, Any], argv: Sequence[str], *, has_arguments: bool, has_pid: bool) -> dict[str, Any]:
    """Return the body of a request with the labels of its origin. A label of the body replaces a label of the origin. Origin
    labels are added up to 32 labels in all."""
    labels = body.get("labels") or {}
    origin = {"user": user_name(), "host": socket.gethostname().partition(".")[0]}
    origin["command"] = command_line(argv, has_arguments=has_arguments)
    if has_pid:
        origin["pid"] = str(os.getpid())
    new = {key: one_line(text)[:MAX_LENGTH] for key, text in origin.items() if key not in labels and text}
    return {**body, "labels": dict([*labels.items(), *new.items()][: max(MAX_LABELS, len(labels))])}


def user_name() -> str:
    """Return the name of the user of this process, or its number if the machine has no name for it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
