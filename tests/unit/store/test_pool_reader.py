"""A pool with many groups and policies is read in pages, and again if they change meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.domain.declaration import GroupDeclaration, PolicyDeclaration, export_pool
from app.domain.declaration_diff import DeclarationStep
from app.domain.errors import NotFound
from app.store.connection import RedisClient
from app.store.pool_reader import MAX_TRIES, PAGE, read_pool
from app.store.scripts import Arg, ScriptReply, Scripts
from tests.support.world import World

GROUPS, POLICIES = {f"g{number}" for number in range(PAGE + 20)}, {f"orchestrator/t{number}" for number in range(2 * PAGE + 50)}


class Interrupted(Scripts):
    """Scripts that count their calls; something happens after each."""

    def __init__(self, client: RedisClient, happens: Callable[[int], object] = lambda _: None) -> None:
        super().__init__(client)
        self.calls, self._happens = 0, happens

    def call(self, command: str, workspace: str, /, **args: Arg) -> ScriptReply:
        """Call, then let it happen."""
        reply = super().call(command, workspace, **args)
        self.calls += 1
        self._happens(self.calls)
        return reply


@pytest.fixture
def large(world: World) -> World:
    """Create a pool with more groups and policies than two pages have."""
    world.pool(gpu=4)
    before = export_pool(world.get_pool())
    groups = [GroupDeclaration(name=name) for name in GROUPS]
    policies = [PolicyDeclaration(component=name.partition("/")[2]) for name in POLICIES]
    after = before.model_copy(update={"groups": groups, "policies": policies})
    assert world.ledger.declare(world.workspace, [DeclarationStep(before, after)])
    return world


@pytest.mark.backends("fake", "embedded")
def test_a_large_pool_is_read_in_pages(large: World) -> None:
    scripts = Interrupted(large.client)
    large.submit("t7", gpu=3)
    pool = read_pool(scripts, large.workspace, "p")
    assert (set(pool.groups), set(pool.policies)) == (GROUPS, POLICIES)
    assert (pool.used, pool.policies["orchestrator/t7"].used) == ({"gpu": 3, "step_run": 1}, {"gpu": 3, "step_run": 1})
    assert scripts.calls > 3


def test_a_small_pool_is_read_at_one_moment(world: World) -> None:
    world.pool(gpu=4)
    world.group("g")
    world.policy("a", group="g")
    scripts = Interrupted(world.client)
    pool = read_pool(scripts, world.workspace, "p")
    assert (set(pool.groups), set(pool.policies), scripts.calls) == ({"g"}, {"orchestrator/a"}, 1)


def test_a_pool_whose_policies_change_between_two_pages_is_read_again(large: World) -> None:
    def add_policy(call: int) -> None:
        if call == 2:
            large.policy("late", priority=7)

    scripts = Interrupted(large.client, add_policy)
    pool = read_pool(scripts, large.workspace, "p")
    assert pool.policies.keys() == {*POLICIES, "orchestrator/late"}
    calls = Interrupted(large.client)
    read_pool(calls, large.workspace, "p")
    assert scripts.calls == 2 * calls.calls


def test_a_pool_that_changes_all_the_time_is_read_a_few_times(large: World) -> None:
    scripts = Interrupted(large.client, lambda call: large.policy("late", priority=call))
    assert read_pool(scripts, large.workspace, "p").policies.keys() > POLICIES
    calls = Interrupted(large.client)
    read_pool(calls, large.workspace, "p")
    assert scripts.calls == MAX_TRIES * calls.calls


def test_a_pool_that_is_deleted_between_two_pages_is_not_found(large: World) -> None:
    def delete(call: int) -> None:
        if call == 1:
            before = export_pool(large.get_pool())
            assert large.ledger.declare(large.workspace, [DeclarationStep(before, None)])

    with pytest.raises(NotFound):
        read_pool(Interrupted(large.client, delete), large.workspace, "p")
