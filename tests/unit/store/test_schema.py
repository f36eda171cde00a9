"""The schema number: an empty Redis gets it, another number is refused, and so is a Redis that was written before numbers."""

from __future__ import annotations

import re

import pytest

from app.domain.tokens import Role, Token
from app.store.connection import RedisClient
from app.store.keys import SCHEMA_NUMBER, WORKSPACES
from app.store.schema import SCHEMA, SchemaMismatch, check_schema, check_schema_before_scripts
from app.store.scripts import Scripts, address, observe
from app.store.tokens import TokenStore
from app.store.workspaces import WorkspaceRegistry


def refusal(client: RedisClient, stored: int | str) -> str:
    """Return the error of a process that finds another schema."""
    text = (
        f"Redis at {address(client)} holds schema {stored}, this Poolkeeper needs {SCHEMA}. "
        "Start the version that wrote it, or use an empty Redis."
    )
    return f"^{re.escape(text)}$"


def test_an_empty_redis_gets_the_number(client: RedisClient) -> None:
    check_schema(client)
    assert client.get(SCHEMA_NUMBER) == str(SCHEMA)
    assert client.ttl(SCHEMA_NUMBER) == -1


def test_a_redis_with_this_number_is_accepted_in_one_call(client: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    check_schema(client)
    client.sadd(WORKSPACES, "default")
    for name in ("exists", "set"):
        monkeypatch.setattr(client, name, None)
    check_schema(client)


def test_a_number_that_is_read_as_it_is_is_raised(client: RedisClient) -> None:
    client.set(SCHEMA_NUMBER, "3")
    check_schema(client)
    assert client.get(SCHEMA_NUMBER) == str(SCHEMA)


@pytest.mark.parametrize("stored", [2, SCHEMA + 1, "a few"])
def test_another_number_is_refused(client: RedisClient, stored: int | str) -> None:
    client.set(SCHEMA_NUMBER, stored)
    with pytest.raises(SchemaMismatch, match=refusal(client, stored)):
        check_schema(client)
    assert client.get(SCHEMA_NUMBER) == str(stored)


def test_workspaces_without_a_number_are_refused_as_schema_1(client: RedisClient) -> None:
    client.sadd(WORKSPACES, "default")
    for _ in range(2):
        with pytest.raises(SchemaMismatch, match=refusal(client, 1)):
            check_schema(client)
    assert not client.exists(SCHEMA_NUMBER)


def test_tokens_of_a_service_without_workspaces_stay_valid(client: RedisClient) -> None:
    TokenStore(client).create_token("digest", Token(id="1", name="ci", role=Role.VIEWER, workspaces=("*",)), lasts_s=60)
    check_schema(client)
    assert client.get(SCHEMA_NUMBER) == str(SCHEMA)


def test_a_process_that_starts_at_the_same_time_is_no_other_version(
    client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_look = True
    get = client.get

    def get_before_the_other(name: str) -> object:
        """Return the number, and let another process number the Redis and use a workspace right after the first call."""
        nonlocal first_look
        number = get(name)
        if first_look:
            first_look = False
            check_schema(client)
            client.sadd(WORKSPACES, "default")
        return number

    monkeypatch.setattr(client, "get", get_before_the_other)
    check_schema(client)
    assert get(SCHEMA_NUMBER) == str(SCHEMA)


def test_of_two_versions_that_start_at_once_one_is_refused(client: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    exists = client.exists

    def exists_before_the_other(*names: str) -> object:
        """Return the count, and let a process of another version number the Redis right afterwards."""
        count = exists(*names)
        client.set(SCHEMA_NUMBER, SCHEMA + 1, nx=True)
        return count

    monkeypatch.setattr(client, "exists", exists_before_the_other)
    with pytest.raises(SchemaMismatch, match=refusal(client, SCHEMA + 1)):
        check_schema(client)


def test_no_script_runs_on_another_schema(client: RedisClient) -> None:
    client.set(SCHEMA_NUMBER, SCHEMA + 1)
    observe(client, check_schema_before_scripts(client))
    for _ in range(2):
        with pytest.raises(SchemaMismatch):
            Scripts(client).call("list_pools", "default")
    client.set(SCHEMA_NUMBER, SCHEMA)
    assert Scripts(client).call("list_pools", "default").tag == "found"


def test_the_schema_is_compared_before_the_first_script_only(client: RedisClient) -> None:
    observe(client, check_schema_before_scripts(client))
    scripts = Scripts(client)
    scripts.call("list_pools", "default")
    client.set(SCHEMA_NUMBER, SCHEMA + 1)
    assert scripts.call("list_pools", "default").tag == "found"


def test_a_workspace_is_registered_on_this_schema_only(client: RedisClient) -> None:
    WorkspaceRegistry(client).add("default")
    assert client.get(SCHEMA_NUMBER) == str(SCHEMA)
    client.set(SCHEMA_NUMBER, SCHEMA + 1)
    with pytest.raises(SchemaMismatch):
        WorkspaceRegistry(client).add("other")
    assert client.smembers(WORKSPACES) == {"default"}


def test_a_redis_that_was_emptied_is_numbered_again(client: RedisClient) -> None:
    registry = WorkspaceRegistry(client)
    registry.add("default")
    client.flushall()
    registry.add("other")
    assert (client.get(SCHEMA_NUMBER), client.smembers(WORKSPACES)) == (str(SCHEMA), {"other"})
