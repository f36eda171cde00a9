"""No command reads what a client can make large: with a size ten times as large, its Redis steps are no more than doubled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from app.store.lua_linker import load_commands
from tests.properties import bounded_world
from tests.properties.bounded_world import BoundedWorld, call_every_command
from tests.properties.counted_scripts import CountedScripts, counted, growing
from tests.support.servers import Servers

ALLOWANCE = 50
"""Steps that a command may take more, whatever it took with the smaller size."""

FAIR_SHARE = {"discipline": "fair_share", "backoff_s": 0, "grace_s": 30}

SIZES: dict[str, tuple[Callable[[BoundedWorld, int], None], dict[str, Any], int]] = {
    "shapes": (bounded_world.queue_shapes, {}, 100),
    "shapes of free units": (bounded_world.queue_shapes_of_free_units, {}, 100),
    "shapes of two keys": (bounded_world.queue_shapes_of_two_keys, {}, 100),
    "shapes, fair share": (bounded_world.queue_shapes, FAIR_SHARE, 100),
    "waiters": (bounded_world.queue_one_shape, {}, 100),
    "waiting policies": (bounded_world.queue_for_each_policy, {}, 100),
    "waiting policies, fair share": (bounded_world.queue_for_each_policy, FAIR_SHARE, 30),
    "policies": (bounded_world.add_policies, {}, 100),
    "groups": (bounded_world.add_groups, {}, 100),
    "pools": (bounded_world.add_pools, {}, 20),
    "running": (bounded_world.run_allocations, {}, 100),
    "overdue": (bounded_world.let_deadlines_pass, {}, 100),
    "ended": (bounded_world.end_requests, {}, 100),
    "tasks": (bounded_world.park_tasks, {}, 100),
    "tokens": (bounded_world.create_tokens, {}, 100),
    "holds": (bounded_world.hold_for_waiters, {}, 20),
}
"""What is large → what makes it so, settings of the pool, the smaller size; the larger is ten times that."""

UNBOUNDED_TODAY: dict[str, dict[str, tuple[int, int]]] = {
    "shapes": {
        "copy_workspace": (2151, 18351),
        "get_pool": (1062, 8262),
        "give_patience_hold": (671, 6071),
        "list_lanes": (118, 1018),
        "read_pool_metrics": (2048, 18248),
        "release": (12013, 98413),
        "resume_unfinished": (11013, 97413),
    },
    "shapes of free units": {
        "copy_workspace": (1656, 13356),
        "explain": (1305, 11205),
        "get_pool": (1068, 8268),
        "get_request": (1244, 11144),
        "give_patience_hold": (671, 6071),
        "list_lanes": (118, 1018),
        "list_queue": (1292, 11192),
        "read_pool_metrics": (2048, 18248),
        "release": (2861, 25730),
        "submit": (2329, 25729),
    },
    "shapes of two keys": {
        "copy_workspace": (2456, 21356),
        "explain": (1305, 11205),
        "get_pool": (1068, 8268),
        "get_request": (1244, 11144),
        "give_patience_hold": (671, 6071),
        "list_lanes": (118, 1018),
        "list_queue": (1292, 11192),
        "read_pool_metrics": (2048, 18248),
        "release": (11885, 98285),
        "resume_unfinished": (10753, 97153),
        "submit": (2329, 25729),
    },
    "shapes, fair share": {
        "copy_workspace": (2167, 18367),
        "explain": (860, 6260),
        "get_pool": (1066, 8266),
        "get_request": (747, 6147),
        "give_patience_hold": (673, 6073),
        "list_lanes": (118, 1018),
        "list_queue": (1274, 11174),
        "read_pool_metrics": (2130, 18330),
        "release": (11662, 90862),
        "resume_unfinished": (11471, 97871),
        "submit": (873, 6273),
    },
    "waiters": {"copy_workspace": (551, 2351)},
    "waiting policies": {
        "audit_accounts": (1473, 11373),
        "copy_workspace": (4651, 43351),
        "declare": (2794, 12694),
        "delete_group": (2713, 13513),
        "get_pool": (2362, 21262),
        "give_patience_hold": (671, 6071),
        "list_lanes": (418, 4018),
        "read_pool_metrics": (4748, 45248),
        "read_snapshot": (2004, 11904),
        "read_usage_history": (535, 5035),
        "sample_usage": (1859, 17159),
        "update_pool": (2677, 13477),
    },
    "waiting policies, fair share": {
        "audit_accounts": (705, 3675),
        "copy_workspace": (2317, 19867),
        "declare": (2334, 5304),
        "delete_group": (2176, 5416),
        "explain": (1160, 4957),
        "get_pool": (896, 6566),
        "get_request": (597, 4647),
        "give_patience_hold": (280, 1873),
        "list_lanes": (138, 1218),
        "list_queue": (774, 6174),
        "read_pool_metrics": (2100, 18030),
        "read_snapshot": (2036, 7453),
        "read_usage_history": (185, 1535),
        "resume_unfinished": (5530, 42850),
        "sample_usage": (671, 5261),
        "submit": (723, 4773),
        "update_pool": (2140, 5380),
    },
    "policies": {
        "audit_accounts": (1473, 11373),
        "copy_workspace": (2651, 23351),
        "declare": (2198, 13898),
        "delete_group": (2385, 14985),
        "delete_policy": (1245, 3945),
        "get_pool": (1562, 13262),
        "list_lanes": (318, 3018),
        "read_pool_metrics": (2548, 23248),
        "read_snapshot": (1660, 11560),
        "read_usage_history": (535, 5035),
        "sample_usage": (1859, 17159),
        "set_group": (1279, 3979),
        "set_policy": (1322, 4022),
        "update_pool": (2349, 14949),
    },
    "groups": {
        "audit_accounts": (1073, 7373),
        "copy_workspace": (1151, 8351),
        "declare": (1498, 6898),
        "delete_group": (1685, 7985),
        "get_pool": (962, 7262),
        "read_snapshot": (1260, 7560),
        "update_pool": (1649, 7949),
    },
    "pools": {
        "audit_requests": (3706, 28366),
        "cancel": (1987, 17647),
        "cancel_task": (1549, 12709),
        "copy_workspace": (2711, 23951),
        "drop": (1432, 12592),
        "explain": (1221, 10401),
        "get_request": (1138, 10318),
        "list_component_pools": (25, 205),
        "list_pools": (44, 404),
        "park_task": (1430, 11690),
        "read_counters": (100, 820),
        "release": (4295, 27875),
        "submit": (1479, 12639),
    },
    "running": {"audit_accounts": (3875, 35375), "audit_holds": (4017, 37317), "read_snapshot": (760, 2560)},
    "overdue": {
        "audit_accounts": (3875, 35375),
        "audit_holds": (4017, 37317),
        "copy_workspace": (553, 2353),
        "read_snapshot": (748, 2548),
    },
    "tasks": {
        "audit_accounts": (3875, 35375),
        "audit_holds": (4017, 37317),
        "copy_workspace": (553, 2353),
        "read_snapshot": (766, 2566),
    },
    "tokens": {"create_token": (211, 2011), "list_tokens": (103, 1003), "revoke_token": (216, 2016)},
    "holds": {
        "audit_accounts": (2166, 17826),
        "audit_holds": (3096, 27396),
        "cancel": (1206, 8046),
        "copy_workspace": (1753, 13813),
        "declare": (1848, 8222),
        "delete_group": (1798, 8206),
        "delete_policy": (1776, 8184),
        "end_hold": (1090, 9010),
        "evict_over_limit": (415, 1675),
        "explain": (985, 7465),
        "give_patience_hold": (1053, 6541),
        "park_task": (1107, 7587),
        "preempt": (1398, 9426),
        "read_snapshot": (1925, 13981),
        "reassign_or_reprieve": (1108, 7588),
        "release": (1922, 8269),
        "resume_unfinished": (1334, 7635),
        "set_group": (1810, 8218),
        "set_policy": (1853, 8261),
        "submit": (999, 7479),
        "update_pool": (1762, 8170),
    },
}
"""What is large → the commands whose steps grow with it, and their steps with the smaller and the larger size. A command that
no longer grows has to leave the table."""

STORES = ("ledger_calls", "audit", "tokens", "plan_store", "nudges", "task_outbox")


def measure(servers: Servers, monkeypatch: pytest.MonkeyPatch, size: str, count: int) -> dict[str, int]:
    """Return the most steps of each command in a workspace with so many of something."""
    make, settings, _ = SIZES[size]
    client = servers.client("embedded")
    scripts = CountedScripts(client)
    for module in (*(f"app.store.{store}" for store in STORES), "tests.support.world"):
        monkeypatch.setattr(f"{module}.Scripts", lambda _: scripts)
    monkeypatch.setattr("app.store.plan_store.MAX_WAITERS", bounded_world.PAGE)
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
    found, expected = growing(small, large, ALLOWANCE), UNBOUNDED_TODAY.get(size, {})
    assert not found.keys() - expected.keys(), _described(size, found, expected)
    assert not expected.keys() - found.keys(), _described(size, found, expected)


def _described(size: str, found: Mapping[str, tuple[int, int]], expected: Mapping[str, tuple[int, int]]) -> str:
    new = [f"{name} takes {found[name]} steps" for name in sorted(found.keys() - expected.keys())]
    old = [f"{name} no longer grows and leaves UNBOUNDED_TODAY" for name in sorted(expected.keys() - found.keys())]
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
