"""The origin of a request as one word: `owner/title`, and for another request `type/name|owner/title`.

The scripts write it into lines of words, so blanks and the separators of its parts are escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from app.domain import request_origin
from app.domain.request_origin import Origin

MAX_OWNER, MAX_TITLE = 80, 100
"""The most characters that are kept of an owner and of a title. Every event of a request has them."""
_ESCAPES = {ord(char): f"%{ord(char):02X}" for char in "%/|;@" + "".join(map(chr, range(33)))}


def encode(name: str | None, labels: Mapping[str, str]) -> str | None:
    """Return the word of a request; None if it has neither an owner nor a title."""
    owner, title = request_origin.owner(labels)[:MAX_OWNER], request_origin.title(name, labels)[:MAX_TITLE]
    return f"{owner.translate(_ESCAPES)}/{title.translate(_ESCAPES)}" if owner or title else None


def decode(word: str | None) -> Origin:
    """Return the origin in a word of the request itself, or in one with its component: `type/name|owner/title`."""
    component, _, parts = (word or "").rpartition("|")
    owner, _, title = parts.partition("/")
    return Origin(unquote(owner), unquote(title), component)
