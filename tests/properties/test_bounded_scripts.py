"""No command reads all of a collection that a client can make large: ten times as many members at most double its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from app.domain.ledger_limits import MAX_VICTIM_HOLDS
from app.store.lua_linker import load_commands
from tests.properties import bounded_world
from tests.properties.bounded_world import BoundedWorld, call_every_command
from tests.properties.counted_scripts import CountedScripts, counted, growing
from tests.support.servers import Servers

ALLOWANCE = 50
"""Steps that a command may take more, whatever it took with the smaller size."""

FAIR_SHARE = {"discipline": "fair_share", "backoff_s": 0, "grace_s": 30}

Size: TypeAlias = tuple[Callable[[BoundedWorld, int], None], dict[str, Any], int]
"""A function that makes the workspace large, the settings of the pool, and the smaller size; the larger one is ten times
that."""

MADE_BY_CLIENTS: dict[str, Size] = {
    "shapes": (bounded_world.queue_shapes, {}, 100),
    "shapes of free units": (bounded_world.queue_shapes_of_free_units, {}, 100),
    "shapes of two keys": (bounded_world.queue_shapes_of_two_keys, {}, 100),
    "shapes, fair share": (bounded_world.queue_shapes, FAIR_SHARE, 100),
    "waiters": (bounded_world.queue_one_shape, {}, 100),
    "running": (bounded_world.run_allocations, {}, 100),
    "overdue": (bounded_world.let_deadlines_pass, {}, 100),
    "ended": (bounded_world.end_requests, {}, 100),
    "tasks": (bounded_world.park_tasks, {}, 100),
    "delayed tasks": (bounded_world.park_delayed_tasks, {}, 100),
    "running without a policy": (bounded_world.run_without_policy, {}, 100),
}
"""The sizes that every requester can make large: no command grows with them."""

DECLARED: dict[str, Size] = {
    "policies": (bounded_world.add_policies, {}, 100),
    "waiting policies": (bounded_world.queue_for_each_policy, {}, 100),
    "waiting policies, fair share": (bounded_world.queue_for_each_policy, FAIR_SHARE, 30),
    "policies of a template": (bounded_world.make_policies_by_template, {}, 100),
    "groups": (bounded_world.add_groups, {}, 100),
    "pools": (bounded_world.add_pools, {}, 20),
    "tokens": (bounded_world.create_tokens, {}, 100),
    "limited tokens": (bounded_world.wait_with_limited_tokens, {}, 30),
    "limited components": (bounded_world.limit_components, {}, 30),
}
"""The sizes that only an administrator can make large."""

PREEMPTED: dict[str, Size] = {
    "holds": (bounded_world.hold_for_waiters, {}, MAX_VICTIM_HOLDS),
    "victims of one waiter": (bounded_world.queue_for_many_victims, {}, 100),
}
"""The sizes that the planner makes large, for waiters that may preempt: no command grows with them."""

SIZES = MADE_BY_CLIENTS | DECLARED | PREEMPTED

GROWS_WITH_DECLARATIONS: dict[str, set[str]] = {
    "policies": {
        "declare",
        "delete_group",
        "sample_usage",
        "update_pool",
    },
    "waiting policies": {
        "declare",
        "delete_group",
        "sample_usage",
        "update_pool",
    },
    "policies of a template": {
        "delete_group",
        "sample_usage",
        "update_pool",
    },
    "waiting policies, fair share": {
        "declare",
        "delete_group",
        "explain",
        "get_request",
        "list_queue",
        "read_queue_positions",
        "resume_unfinished",
        "sample_usage",
        "submit",
        "update_pool",
    },
    "groups": {
        "declare",
        "delete_group",
        "update_pool",
    },
    "pools": {
        "audit_requests",
        "audit_shapes",
        "cancel",
        "cancel_task",
        "clean_up",
        "copy_accounts",
        "copy_requests",
        "copy_workspace",
        "count_requests",
        "drop",
        "explain",
        "get_request",
        "list_component_pools",
        "list_pools",
        "park_task",
        "read_counters",
        "read_queue_positions",
        "release",
        "resume_unfinished",
        "start_copy",
        "submit",
        "unsettle_pools",
    },
    "tokens": {
        "create_token",
        "list_tokens",
        "revoke_token",
    },
    "limited tokens": {"list_subjects"},
    "limited components": {"copy_workspace", "get_workspace", "update_workspace"},
}
"""The commands whose steps grow with a declared size, by that size.

No requester can make it large. A workspace has at most `max_pools` pools, `max_policies` policies, `template_max` policies of
each template, and 1,000 components with limits of their own; no limit counts groups and tokens.

These commands grow with policies and are not in parts: `declare`, `update_pool` and `delete_group` compare all policies
and change all or nothing. A sample of the usage has a number of each policy. With fair
share, the tier of a waiter is the rank of its policy among all.
"""

SCRIPT_USERS = (
    *(
        f"app.store.{name}"
        for name in ("ledger_calls", "audit", "availability", "tokens", "plan_store", "nudges", "task_outbox")
    ),
    "tests.support.world",
    "tests.properties.bounded_world",
)
"""The modules of which the calls are counted."""


def measure(servers: Servers, monkeypatch: pytest.MonkeyPatch, size: str, count: int) -> dict[str, int]:
    """Return the most steps of each command in a workspace with this many members of one collection."""
    make, settings, _ = SIZES[size]
    client = servers.client("embedded")
    scripts = CountedScripts(client)
    for module in SCRIPT_USERS:
        monkeypatch.setattr(f"{module}.Scripts", lambda _: scripts)
    for name in bounded_world.READ_PAGES:
        monkeypatch.setattr(f"app.store.workspace_reader.{name}", bounded_world.PAGE)
    monkeypatch.setattr("app.store.pool_reader.PAGE", bounded_world.PAGE)
    world = BoundedWorld(client, settings)
    make(world, count)
    world.resume_all()
    scripts.steps.clear()
    call_every_command(world)
    return scripts.steps


@pytest.mark.parametrize("size", SIZES)
def test_a_command_does_not_read_all_of_what_a_client_can_make_large(
    size: str, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = SIZES[size][2]
    small, large = measure(servers, monkeypatch, size, count), measure(servers, monkeypatch, size, 10 * count)
    assert small.keys() == large.keys() == load_commands().keys(), "every command is called"
    grown, expected = growing(small, large, ALLOWANCE), GROWS_WITH_DECLARATIONS.get(size, set())
    assert grown.keys() == expected, _described(size, grown, expected)


def test_no_command_is_allowed_to_grow_with_what_a_client_can_make_large() -> None:
    assert GROWS_WITH_DECLARATIONS.keys() == DECLARED.keys()


def _described(size: str, grown: Mapping[str, tuple[int, int]], expected: AbstractSet[str]) -> str:
    new = [f"{name} takes {grown[name]} steps" for name in sorted(grown.keys() - expected)]
    old = [f"{name} no longer grows and leaves the table" for name in sorted(expected - grown.keys())]
    return "\n".join([f"ten times as many {size}:", *new, *old])


def test_a_step_is_a_call_an_argument_an_element_or_a_kilobyte(servers: Servers) -> None:
    client = servers.client("embedded")
    client.rpush("list", *range(100))
    client.set("text", "x" * 5_000)

    def steps(code: str) -> int:
        """Return the steps of a script."""
        command = replace(load_commands()["list_pools"], text=code)
        (answer, count) = client.eval(counted(command).text, 0)
        assert answer == "done"
        return int(count)

    assert steps("return 'done'") == 0
    assert steps("redis.call('LLEN', 'list') return 'done'") == 1 + 1 + 1
    assert steps("redis.call('LRANGE', 'list', 0, -1) return 'done'") == 1 + 3 + 100
    assert steps("redis.call('GET', 'text') return 'done'") == 1 + 1 + 5
    assert steps("redis.call('DEL', 'list') return 'done'") == 1 + 1 + 100 + 1


def test_a_command_grows_if_its_steps_are_more_than_doubled() -> None:
    small = {"same": 500, "double": 500, "grown": 500, "tiny": 1}
    large = {"same": 500, "double": 1_000, "grown": 1_051, "tiny": 52}
    assert growing(small, large, 50) == {"grown": (500, 1_051)}
