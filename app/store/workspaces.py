"""The registry of workspaces: a workspace is added before its first use, so that periodic jobs miss none."""

from __future__ import annotations

import time

from app.store.connection import RedisClient
from app.store.keys import WORKSPACES
from app.store.schema import check_schema
from app.store.scripts import translated_errors

_REWRITE_AFTER_S = 30
"""Seconds after which a process writes a name again, in case the key was lost."""


class WorkspaceRegistry:
    """The set of the workspaces on one Redis."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._written: dict[str, float] = {}

    def add(self, workspace: str) -> None:
        """Add a workspace to the set."""
        now = time.monotonic()
        if self._written.get(workspace, -_REWRITE_AFTER_S) + _REWRITE_AFTER_S <= now:
            check_schema(self._client)
            with translated_errors(self._client):
                self._client.sadd(WORKSPACES, workspace)
            self._written[workspace] = now

    def list_names(self) -> list[str]:
        """Return the names of all workspaces ever used, sorted."""
        with translated_errors(self._client):
            return sorted(str(name) for name in self._client.smembers(WORKSPACES))
