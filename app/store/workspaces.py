"""Which workspaces there are: written before the first use of each, so that the housekeeping misses nothing."""

from __future__ import annotations

import time

from app.store.connection import RedisClient
from app.store.keys import WORKSPACES
from app.store.scripts import translated_errors

_REWRITE_AFTER_S = 30
"""How soon a process writes a name again, should the key be lost."""


class WorkspaceRegistry:
    """The set of workspaces on one Redis."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._written: dict[str, float] = {}

    def add(self, workspace: str) -> None:
        """Note that a workspace is in use."""
        now = time.monotonic()
        if self._written.get(workspace, -_REWRITE_AFTER_S) + _REWRITE_AFTER_S <= now:
            with translated_errors(self._client):
                self._client.sadd(WORKSPACES, workspace)
            self._written[workspace] = now

    def list_names(self) -> list[str]:
        """Every workspace ever used, in order."""
        with translated_errors(self._client):
            return sorted(str(name) for name in self._client.smembers(WORKSPACES))
