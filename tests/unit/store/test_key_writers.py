"""The commands that write a key, by the heads and the texts of the scripts; a command that only reads writes none."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.store.connection import RedisClient
from app.store.key_writers import granting_commands, page, writers
from app.store.keys import KEYS
from app.store.lua_linker import load_commands
from app.store.scripts import Scripts
from tests.support.observed_writes import key_name, observe_writes
from tests.unit.store.test_lua_linker import planted

WRITERS = {
    "delayed": ["cancel_task", "clean_up", "park_task", "take_outbox"],
    "job_lock": ["begin_reconcile", "finish_reconcile", "release_job_lock", "take_job_lock"],
    "pool_run_times": ["clean_up", "declare", "delete_idle_policies", "delete_policy", "delete_pool", "park_task", "release"],
    "pool_usage_history": ["declare", "delete_pool", "sample_usage"],
    "rate": ["charge", "throttle"],
    "tokens": ["create_token", "revoke_token"],
}
LEASE_FILES = {
    "audit/audit_index.lua", "audit/audit_requests.lua", "copy/list_live_ids.lua", "copy/start_copy.lua", "jobs/clean_up.lua",
    "lib/clock_jumps.lua", "lib/future_times.lua", "lib/leases.lua", "lib/request_copies.lua", "lib/request_filters.lua",
    "read/count_requests.lua", "read/read_counters.lua", "read/read_deadlines.lua",
}  # fmt: skip
"""The files that use the set of leases: its library, the clean-up, the audit, and what counts, lists or copies leases."""


@pytest.fixture(autouse=True)
def declared_writes() -> None:
    """Observe no writes here, where a test has some that are not declared."""


@pytest.mark.parametrize("key", WRITERS)
def test_the_writers_of_a_key(key: str) -> None:
    assert writers(key) == WRITERS[key]


@pytest.mark.parametrize("key", KEYS)
def test_every_key_has_a_writer(key: str) -> None:
    assert writers(key)


@pytest.mark.parametrize("key", ["leases", "pool_allocations", "pool_queue", "request", "waiting"])
def test_granting_commands_write_what_a_grant_changes(key: str) -> None:
    assert set(granting_commands()) <= set(writers(key))


@pytest.mark.parametrize("command", ["get_requests", "list_queue", "list_requests", "read_pool_metrics", "copy_workspace"])
def test_a_command_that_reads_writes_no_key(command: str) -> None:
    assert load_commands()[command].writes == frozenset()


def test_the_page_has_a_row_for_every_key() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) == len(KEYS)
    assert all(len(row.replace("\\|", "").split("|")) == 6 for row in rows)


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_key_is_known_by_its_shape(key: object) -> None:
    assert isinstance(key, type(KEYS["pool"]))
    values = {"slot": "limit|policy:a/b|gpu@a/b", "component": "a/b", "lane": "a/b|p|gpu=1"}
    assert key_name(key.of("w", *(values.get(parameter, "x") for parameter in key.parameters))) == key.name


def test_only_the_library_of_leases_decides_about_leases() -> None:
    folder = Path(load_commands.__code__.co_filename).parent / "lua"
    files = {
        path.relative_to(folder).as_posix() for path in folder.rglob("*.lua") if "keys.leases()" in path.read_text("utf-8")
    }
    assert files == LEASE_FILES


@pytest.mark.backends("fake")
def test_a_write_that_is_not_declared_is_observed(client: RedisClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = {
        "do_it.lua": "-- Do it.\n-- @use accounts\n-- @reply done\n\naccounts.put('pk:{w}:pool:p')\nreturn reply.done()\n",
        "lib/accounts.lua": "-- Put.\n-- @writes policy\n\nfunction accounts.put(key) redis.call('HSET', key, 'a', 1) end\n",
    }
    commands = load_commands(planted(tmp_path, tree))
    assert commands["do_it"].writes == {"policy"}
    monkeypatch.setattr("tests.support.observed_writes.load_commands", lambda: commands)
    with observe_writes(monkeypatch) as undeclared:
        Scripts(client, commands).call("do_it", "w")
    assert undeclared == {("do_it", "pool")}
