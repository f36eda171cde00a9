"""The limits of the body of a route, in bytes and in members. They are checked before the body is parsed.

A parser makes a Python object of each member of a JSON object or list, and a validator an error of each wrong member. So a few
bytes of a body may cost much memory and time. Therefore the members are counted in the bytes first.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.tasks import MAX_MESSAGE_BYTES


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """The most bytes of a body, and the most members of all its objects and lists together."""

    bytes: int
    members: int

    def within(self, max_bytes: int) -> BodyLimit:
        """Return this limit, or one of fewer bytes."""
        return BodyLimit(min(self.bytes, max_bytes), self.members)


SMALL_BODY = BodyLimit(64 * 2**10, 2_000)
"""The limit of most routes."""
TASK_BODY = BodyLimit(MAX_MESSAGE_BYTES + SMALL_BODY.bytes, 20_000)
"""The limit of a task: its message, and the small body around it."""
POOL_BODY = BodyLimit(2**20, 20_000)
"""The limit of a new pool."""
LARGE_BODY = BodyLimit(2**30, 100_000)
"""The limit of batches, declarations and dry runs. The setting `max_body_bytes` lowers it."""

MAX_FORM_FIELDS = 500
"""The most fields of a form of the dashboard: a policy in a pool of 32 keys has 70."""


def has_more_members(data: bytes, most: int) -> bool:
    """True if the objects and lists of a JSON text have more than `most` members in all; an empty one counts as a member.

    First all separators are counted, also those in texts: this is cheap, and never fewer than the members. Only if they are too
    many, the texts are removed and the separators are counted again.
    """
    if _count_separators(data) <= most:
        return False
    unescaped = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') > 4 * (most + 1):  # a member has two texts at most, each with two quotes
        return True
    return _count_separators(b"".join(unescaped.split(b'"')[::2])) > most


def _count_separators(data: bytes) -> int:
    """Return the number of commas and opening brackets: each begins a member, or an empty object or list."""
    return data.count(b",") + data.count(b"{") + data.count(b"[")
