"""The origin of a request, as the views show it: its short id, its owner and its title.

`poolkeeper run` writes the labels `user`, `host`, `pid` and `command`; a parked task has the label `task`.
"""

from __future__ import annotations

from collections.abc import Mapping

SHORT_ID_LENGTH = 6
"""Characters at the end of an id. Ids begin with their time, so ids of one day have equal beginnings."""


def short_id(request_id: str) -> str:
    """Return the end of an id, which differs between the requests of one day."""
    return request_id[-SHORT_ID_LENGTH:]


def owner(labels: Mapping[str, str]) -> str:
    """Return `user@host`, the part that is there, or an empty text."""
    return "@".join(labels[key] for key in ("user", "host") if labels.get(key))


def title(name: str | None, labels: Mapping[str, str]) -> str:
    """Return the name of a request, else its command, else its task, else an empty text."""
    return name or labels.get("command") or labels.get("task") or ""
