"""The schema number of a Redis: the version of the keys and fields that Poolkeeper expects in it.

A Redis has one number, in a key of no workspace. A process compares it before its first script, and before it registers a
workspace. An empty Redis gets the number of the process; SET NX makes that safe if several start at once. A Redis with
workspaces and without a number was written before there were numbers: schema 1.

Raise SCHEMA with every change of `keys.py`, of the fields and values under a key, or of the names of the workers' Celery tasks,
that a process of the version before would misread. If this version reads the data of a lower number as it is, the number
belongs to CONVERTIBLE.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from app.domain.errors import StoreUnavailable
from app.store.connection import RedisClient
from app.store.keys import SCHEMA_NUMBER, WORKSPACES
from app.store.scripts import address, translated_errors

SCHEMA: Final = 4
CONVERTIBLE: Final = frozenset({"3"})
"""Lower numbers whose data this version reads as it is. Schema 4 added the instances of templates, which a process of schema 3
would treat as declared policies."""
UNNUMBERED: Final = 1
"""The schema of a Redis that has workspaces and no number."""


class SchemaMismatch(StoreUnavailable):
    """This Redis holds the data of another version."""

    def __init__(self, redis: str, stored: str) -> None:
        text = (
            f"Redis at {redis} holds schema {stored}, this Poolkeeper needs {SCHEMA}. "
            "Start the version that wrote it, or use an empty Redis."
        )
        super().__init__("unsuitable", text)


def check_schema(client: RedisClient) -> None:
    """Raise SchemaMismatch unless the Redis holds this schema. Number an empty one; convert one that needs only a new number.
    If the Redis holds this number, that is one call."""
    with translated_errors(client):
        stored = _stored_number(client) or _number_empty(client)
        if stored in CONVERTIBLE:
            client.set(SCHEMA_NUMBER, SCHEMA)
            stored = str(SCHEMA)
    if stored != str(SCHEMA):
        raise SchemaMismatch(address(client), stored)


def check_schema_before_scripts(client: RedisClient) -> Callable[[str], AbstractContextManager[object]]:
    """Return a wrapper for `observe`: the first script call compares the schema, also if Redis was away at the start."""
    checked = False

    def wrapper(_: str) -> AbstractContextManager[object]:
        nonlocal checked
        if not checked:
            check_schema(client)
            checked = True
        return nullcontext()

    return wrapper


def _number_empty(client: RedisClient) -> str:
    """Give an empty Redis the number of this process. Return the number that it has then."""
    if client.exists(WORKSPACES):  # without workspaces it can only have tokens, and these have not changed
        # A process that started at the same time wrote the number before its first workspace.
        return _stored_number(client) or str(UNNUMBERED)
    client.set(SCHEMA_NUMBER, SCHEMA, nx=True)
    return _stored_number(client) or str(SCHEMA)


def _stored_number(client: RedisClient) -> str | None:
    number = client.get(SCHEMA_NUMBER)
    return None if number is None else str(number)
