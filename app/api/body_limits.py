"""How large the body of a route may be, in bytes and in members, checked before the body is parsed.

A parser makes an object of each member of a JSON object or list, and a validator an error of each that is wrong. So a few bytes
of a body cost much memory and time, and the members are counted in the bytes first.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.tasks import MAX_MESSAGE_BYTES


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """The bytes of a body, and the members of all objects and lists in it together, at most."""

    bytes: int
    members: int

    def within(self, max_bytes: int) -> BodyLimit:
        """Return this limit, or one of fewer bytes."""
        return BodyLimit(min(self.bytes, max_bytes), self.members)


SMALL_BODY = BodyLimit(64 * 2**10, 2_000)
"""The limit of most routes."""
TASK_BODY = BodyLimit(MAX_MESSAGE_BYTES + SMALL_BODY.bytes, 20_000)
"""A task: its message, and as much as any other body."""
POOL_BODY = BodyLimit(2**20, 20_000)
"""A new pool."""
LARGE_BODY = BodyLimit(2**30, 100_000)
"""Batches, declarations and dry runs: as many bytes as the setting `max_body_bytes` allows."""

MAX_FORM_FIELDS = 500
"""The fields of a form of the dashboard, at most: a policy in a pool of 32 keys has 70."""


def has_more_members(data: bytes, most: int) -> bool:
    """True if the objects and lists of a JSON text have more than `most` members in all; an empty one counts as a member.

    The separators are counted, with those in texts first: that is never too few, and cheap. Only if it is too many, the texts
    are cut out, and the separators are counted again.
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
