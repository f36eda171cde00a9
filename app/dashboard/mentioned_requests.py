"""Requests that a page mentions by id: a link with the short id, then the component and the units."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from markupsafe import Markup

from app.dashboard.page_context import PageContext
from app.domain.errors import NotFound
from app.domain.models import Request
from app.domain.names import component_id
from app.domain.request_origin import short_id

MAX_MENTIONED = 60
"""The most requests that are read for one page; others are links only."""
_IN_TEXT = re.compile(r"\b([Rr]equest )([\w.-]{6,}\w)")


def ids_in_texts(texts: Iterable[str | None]) -> list[str]:
    """Return the words that may be ids of requests in sentences such as `request 1m7… is before it`."""
    return [match[2] for text in texts if text for match in _IN_TEXT.finditer(text)]


def read_mentioned(context: PageContext, ids: Iterable[str | None]) -> dict[str, Request]:
    """Return id → request, for the requests that exist and that the user may see."""
    requests = {}
    for identifier in list(dict.fromkeys(identifier for identifier in ids if identifier))[:MAX_MENTIONED]:
        with suppress(NotFound, ValueError):
            request = context.services.requests.get(context.workspace, identifier)
            if context.user.can_see(component_id(request.component_type, request.component)):
                requests[identifier] = request
    return requests


def link_ids(text: str, requests: Mapping[str, Request], link: Callable[[str], str], own: str | None = None) -> Markup:
    """Return a sentence as HTML in which the ids of these requests are links. `own`, the id of the page, is no link."""
    parts, end = [], 0
    for match in _IN_TEXT.finditer(text):
        identifier = match[2]
        if identifier not in requests and identifier != own:
            continue
        parts.append(Markup("{}{}").format(text[end : match.start()], match[1]))
        parts.append(_reference(identifier, None if identifier == own else link(f"/requests/{identifier}")))
        end = match.end()
    return Markup("").join([*parts, Markup("{}").format(text[end:])])


def _reference(identifier: str, url: str | None) -> Markup:
    if url is None:
        return Markup('<span class="id" title="{}">{}</span>').format(identifier, short_id(identifier))
    return Markup('<a class="id" href="{}" title="{}">{}</a>').format(url, identifier, short_id(identifier))
