"""Random workspaces in use, with random declarations: each is applied at once as a whole, or changes nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.domain import quota_validation
from app.domain.declaration import Declaration, PoolDeclaration
from app.domain.errors import Conflict, Refusal, RuleViolation
from app.service.pools_file import read, write
from app.store.connection import RedisClient
from tests.properties.invariants import Checker
from tests.properties.snapshot import events_since
from tests.support.audit_findings import findings
from tests.support.servers import Servers
from tests.support.world import World

EXAMPLES = int(os.environ.get("HISTORIES") or 0) or 40

KEYS, GROUPS, COMPONENTS = ("gpu", "tpu"), ("g", "h"), ("a", "b", "c")

amounts = st.dictionaries(st.sampled_from(KEYS), st.integers(0, 3), max_size=2)
own = st.fixed_dictionaries(
    {},
    optional={
        "over_limit": st.sampled_from(("keep", "evict")),
        "aggressive_starvation": st.booleans(),
        "fair_share_tolerance": st.integers(0, 1_000_000).map(lambda millionths: millionths / 1_000_000),
        "non_preemptible_usage_threshold": st.dictionaries(st.just("gpu"), st.integers(0, 3)),
    },
)
numbers = st.fixed_dictionaries(
    {"reserved": st.dictionaries(st.sampled_from(KEYS), st.integers(0, 1), max_size=2), "weight": st.integers(1, 2)},
    optional={"limit": amounts, "settings": own},
)
mostly = st.sampled_from((True,) * 11 + (False,))


@st.composite
def pools(draw: st.DrawFn, name: str, *, wild: bool) -> dict[str, Any]:
    """Draw a pool whose numbers agree; at times those of a wild one do not."""
    capacity = {"gpu": draw(st.integers(2, 6))} | draw(st.dictionaries(st.just("tpu"), st.integers(1, 3)))
    settings = {"queueing": draw(st.sampled_from(("best_effort", "best_effort", "strict"))), **draw(own)}
    groups: list[dict[str, Any]] = []
    for group in draw(st.lists(st.sampled_from(GROUPS), unique=True)):
        above = draw(st.sampled_from((None, *(other_group["name"] for other_group in groups))))
        groups.append({"name": group, "parent": above, "mode": draw(st.sampled_from(("fair_share", "fifo"))), **draw(numbers)})
    policies = []
    for component in (candidate for candidate in COMPONENTS if draw(mostly)):
        above = draw(st.sampled_from((None, *(other_group["name"] for other_group in groups))))
        policies.append({"component": component, "group": above, "priority": draw(st.integers(0, 2)), **draw(numbers)})
    if not wild or draw(mostly):
        _agree(capacity, groups, policies)
    return {"name": name, "capacity": capacity, "settings": settings, "groups": groups, "policies": policies}


def _agree(capacity: dict[str, int], groups: list[dict[str, Any]], policies: list[dict[str, Any]]) -> None:
    """Make the numbers agree: keys that the pool lacks go, parents reserve the sum of their children, limits are not below
    that."""

    def of_children(name: str | None, key: str) -> int:
        children = (account for account in (*groups, *policies) if account.get("parent", account.get("group")) == name)
        return sum(child["reserved"].get(key, 0) for child in children)

    for account in (*policies, *reversed(groups)):
        account["reserved"] = {key: units for key, units in account["reserved"].items() if key in capacity}
        for key in capacity if "name" in account else ():
            if total := of_children(account["name"], key):
                account["reserved"][key] = max(total, account["reserved"].get(key, 0))
    for key in capacity:
        capacity[key] = max(capacity[key], of_children(None, key))
    for account in (*policies, *groups):
        limits = {key: units for key, units in account.get("limit", {}).items() if key in capacity}
        account["limit"] = {
            key: min(capacity[key], max(units, account["reserved"].get(key, 0))) for key, units in limits.items()
        }


@dataclass(frozen=True)
class Story:
    """A case: the pools before, the requests, and the declared pools."""

    before: dict[str, dict[str, Any]]
    asks: list[dict[str, Any]]
    waits_s: float
    releases: int
    after: dict[str, dict[str, Any]]
    prune: bool
    chunk: int


asks = st.fixed_dictionaries(
    {"component": st.sampled_from(COMPONENTS), "gpu": st.integers(1, 4)},
    optional={"tpu": st.integers(1, 2), "preemptible": st.booleans(), "walltime_s": st.integers(1, 9)},
)
tame, wild = (st.fixed_dictionaries({"p": pools("p", wild=how)}, optional={"q": pools("q", wild=how)}) for how in (False, True))
stories = st.builds(
    Story,
    before=tame,
    asks=st.lists(asks, min_size=2, max_size=10),
    waits_s=st.sampled_from((0, 400)),
    releases=st.integers(0, 3),
    after=wild,
    prune=st.booleans(),
    chunk=st.sampled_from((1, 3, 200)),
)


def declaration(workspace: dict[str, dict[str, Any]]) -> Declaration:
    """Return the declaration of a workspace."""
    return Declaration.model_validate({"pools": list(workspace.values())})


def in_order(pools: list[PoolDeclaration]) -> dict[str, Any]:
    """Return pools without the order in which they are listed."""
    return {
        pool.name: pool.model_dump(exclude={"groups", "policies"})
        | {account.name: account.model_dump() for account in pool.groups}
        | {account.name: account.model_dump() for account in pool.policies}
        for pool in pools
    }


def seed(world: World, story: Story) -> None:
    """Create the pools of the case, with allocations, waiters and holds."""
    world.declarations.apply(world.workspace, declaration(story.before))
    requests = [world.submit(own_id=f"r{index}", **ask) for index, ask in enumerate(story.asks)]
    if story.waits_s:
        world.pass_time(story.waits_s)
    for request in [each_request for each_request in requests if world.status(each_request) == ["allocated"]][: story.releases]:
        world.release(request)


def forbidden(world: World, target: Declaration, *, prune: bool) -> set[str]:
    """Return the expected conflicts, derived from the public state of the pools."""
    conflicts, named = set(), {pool.name: pool for pool in target.pools}
    for name in world.pools():
        pool, after = world.get_pool(name), named.get(name)
        if after is None:
            conflicts |= {"in_use"} if prune and pool.queue_length + pool.active_count else set()
            continue
        conflicts |= {"key_in_use" for key in pool.capacity if key not in after.capacity and pool.used.get(key)}
        parents = {declared_policy.name: declared_policy.group for declared_policy in after.policies}
        for policy in pool.policies.values():
            if policy.name not in parents and (policy.queued or policy.used.get("step_run")):
                conflicts.add("in_use")
            if any(policy.used.values()) and parents.get(policy.name, policy.parent) != policy.parent:
                conflicts.add("moves_in_use")
        above = {group.name: group.parent for group in after.groups}
        for group in pool.groups.values():
            if any(group.used.values()) and above.get(group.name, group.parent) != group.parent:
                conflicts.add("moves_in_use")
    return conflicts


def against_the_rules(target: Declaration) -> bool:
    try:
        quota_validation.validate_quotas(target)
    except Refusal:
        return True
    return False


def from_here(world: World) -> Checker:
    """Return a checker for the events from now on."""
    checker = Checker(world)
    for entry, event in events_since(world.client, world.workspace, checker.last_event):
        checker.last_event = entry
        checker.last_fence = max(checker.last_fence, int(event["fence"] or 0))
        checker.event_counts[event["request"]] = checker.event_counts.get(event["request"], 0) + 1
        checker.tally.note(event)
    return checker


def live(client: RedisClient, story: Story) -> str:
    """Run one case, check everything, and return its kind of end."""
    world = World(client, chunk=story.chunk)
    declaring = world.declarations
    seed(world, story)
    checker = from_here(world)
    target, before = declaration(story.after), world.state()
    wrong, conflicts = against_the_rules(target), forbidden(world, target, prune=story.prune)
    if wrong or conflicts:
        with pytest.raises(RuleViolation if wrong else Conflict) as refused:
            declaring.apply(world.workspace, target, prune=story.prune)
        assert world.state() == before, "refused, and yet changed"
        assert wrong or refused.value.code in conflicts
        return "against the rules" if wrong else refused.value.code
    plan = declaring.apply(world.workspace, target, prune=story.prune)
    exported, after = declaring.export(world.workspace), world.state()
    declared = in_order(exported.pools)
    assert {name: declared[name] for name in story.after} == in_order(target.pools)
    assert story.after.keys() == declared.keys() or not story.prune
    assert declaring.plan(world.workspace, target, story.prune).changes == ()
    for again in (target, exported, read(write(exported))):
        declaring.apply(world.workspace, again, prune=story.prune)
    assert (world.state(), findings(world)) == (after, [])
    checker.check()
    return "done" if plan.changes else "nothing to do"


@pytest.mark.timeout(300)
def test_what_is_declared_is_so_or_nothing_is_changed(servers: Servers) -> None:
    ends: dict[str, int] = {}

    @settings(max_examples=EXAMPLES, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(story=stories)
    def tell(story: Story) -> None:
        end = live(servers.client("embedded"), story)
        ends[end] = ends.get(end, 0) + 1

    tell()
    print(ends)
    assert ends.get("done", 0) > EXAMPLES // 4, ends
