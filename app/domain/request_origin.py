"""The origin of a request for display: its short id, its owner and its title.

`poolkeeper run` writes the labels `user`, `host`, `pid` and `command`; a parked task has the label `task`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

SHORT_ID_LENGTH = 6
"""The number of characters of a short id. It is the end of the id: ids begin with their time, so ids of one day begin alike."""


ORIGIN_LABELS = ("user", "host", "pid", "command")
"""The labels that `poolkeeper run` writes. They do not count when a spec is compared with that of an earlier call."""


class Origin(NamedTuple):
    """The owner and the title of a request; empty texts if it has none. The component too, for another request in an event."""

    owner: str = ""
    title: str = ""
    component: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, self[:2]))


NO_ORIGIN = Origin()


def short_id(request_id: str) -> str:
    """Return the end of an id, which differs between the requests of one day."""
    return request_id[-SHORT_ID_LENGTH:]


def owner(labels: Mapping[str, str]) -> str:
    """Return `user@host`, or the part that is known, or an empty text."""
    return "@".join(labels[key] for key in ("user", "host") if labels.get(key))


def title(name: str | None, labels: Mapping[str, str]) -> str:
    """Return the name of a request, else its command, else its task, else an empty text."""
    return name or labels.get("command") or labels.get("task") or ""
