"""The reader of a pool with its groups and policies: a small pool at one moment, a large pool in pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.domain.models import Pool
from app.store import codec
from app.store.reply_outcomes import require_found
from app.store.scripts import Scripts

PAGE: Final = 100
"""The groups and policies that one call reads, approximately: SSCAN may return more."""
MAX_TRIES: Final = 3
"""The most attempts to read a large pool whose groups or policies change meanwhile."""


def read_pool(scripts: Scripts, workspace: str, name: str) -> Pool:
    """Return a pool with its groups and policies. Raise NotFound if it does not exist.

    With more than PAGE groups and policies, the units in use may be of different moments. If a group or a policy is changed
    between two pages, the pool is read again.
    """
    pages: list[Mapping[str, Any]] = []
    for _ in range(MAX_TRIES):
        pages = [_read_page(scripts, workspace, name, "groups", "0")]
        while kind := pages[-1]["kind"]:
            pages.append(_read_page(scripts, workspace, name, kind, pages[-1]["cursor"]))
        if _rules(pages[0]) == _rules(pages[-1]):
            break
    groups, policies = ([row for page in pages for row in page[kind]] for kind in ("groups", "policies"))
    return codec.decode_pool(name, {**pages[-1], "groups": groups, "policies": policies})


def _read_page(scripts: Scripts, workspace: str, name: str, kind: str, cursor: str) -> Mapping[str, Any]:
    reply = scripts.call("get_pool", workspace, name=name, kind=kind, cursor=cursor, count=PAGE)
    return require_found(reply, "pool", name).fields


def _rules(page: Mapping[str, Any]) -> str | None:
    """Return the number of the last change of the pool, its groups and policies."""
    return codec.to_mapping(page["pool"]).get("rules")
