"""What a trial says is what the real thing then does, and a trial writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TypeAlias, TypeVar

from app.domain.declaration import PolicyDeclaration
from app.domain.dry_run import ChangeOutcome
from app.domain.errors import Refusal
from app.domain.specs import PoolUpdate
from app.domain.states import HOLDING_STATES
from app.service.dry_run import DryRun
from app.store.workspace_copy import ThrowawayRedis, WorkspaceCopier
from tests.properties.random_workspaces import COMPONENTS, Scene
from tests.properties.test_explain import SCENES
from tests.support.redis_snapshot import dump
from tests.support.servers import Servers
from tests.support.world import World

SCRATCH, FIRST = ThrowawayRedis(), 50
"""From there on changes of every kind come soon."""


def trying(world: World) -> DryRun:
    return DryRun(WorkspaceCopier(world.client, SCRATCH, world.clock), world.limits)


def test_a_submit_comes_to_what_was_said(servers: Servers) -> None:
    seen: Counter[str] = Counter()
    for number in range(SCENES // 2):
        scene = Scene(World(servers.client("embedded")), number, pools=2)
        seen[_tried(scene)] += 1
    assert {"allocated", "preempts", "queued", "rejected"} == seen.keys(), seen


def _tried(scene: Scene) -> str:
    world = scene.world
    before, (component, wanted) = dump(world.client), scene.ask()
    told = trying(world).submit(world.workspace, world.request_spec(component, **wanted))
    assert dump(world.client) == before
    last = world.ledger.get_last_event_id(world.workspace)
    one = world.submit(component, **wanted)
    scene.settle()
    events = world.ledger.read_events(world.workspace, last, 1000)
    victims = list(dict.fromkeys(event.request for event in events if event.by == one.id and event.request != one.id))
    now = world.get(one)
    status = "allocated" if now.status in HOLDING_STATES else str(now.status)
    assert told.outcome == ("preempts" if victims else status)
    assert [victim for victim, _ in told.victims] == victims
    assert (told.request.status, told.request.position, told.request.pool) == (now.status, now.position, now.pool)
    assert [view.status.wait_reason for view in told.views] == [view.status.wait_reason for view in scene.explain(one).pools]
    return told.outcome


def test_a_change_comes_to_what_was_said(servers: Servers) -> None:
    seen: Counter[str] = Counter()
    for number in range(FIRST, FIRST + SCENES // 4):
        seen.update(_changed(Scene(World(servers.client("embedded")), number, pools=2)))
    assert {"granted", "preempted", "reprieved", "rejected", "ended", "refused"} == seen.keys(), seen


Outcome = TypeVar("Outcome")
Change: TypeAlias = tuple[Callable[[DryRun], ChangeOutcome], Callable[[], object]]
"""It tried out, and it done."""


def _change(scene: Scene) -> Change:
    world, draw = scene.world, Random(len(scene.requests()) * 7919 + scene.random.randint(0, 999))
    where, pool = world.workspace, draw.choice(scene.pools)
    kind = draw.choice(("resize", "policy", "cancel", "drop"))
    if kind == "resize":
        change = PoolUpdate(capacity={"gpu": draw.randint(1, 10)})
        return lambda t: t.update_pool(where, pool, change), lambda: world.ledger.update_pool(where, pool, change)
    if kind == "policy":
        said = {"priority": draw.randint(0, 9), "limit": draw.choice(({}, {"gpu": 1}, {"gpu": 3}))}
        policy = PolicyDeclaration.model_validate({"component": draw.choice(COMPONENTS), **said})
        return lambda t: t.set_policy(where, pool, policy), lambda: world.policy(policy.component, pool, **said)
    states = ("queued",) if kind == "cancel" else ("queued", "allocated", "preempting")
    one = draw.choice([one for one in scene.requests() if one.status in states] or scene.requests())
    if kind == "cancel":
        return lambda t: t.cancel(where, one.id), lambda: world.cancel(one)
    return lambda t: t.drop(where, one.id), lambda: world.drop(one)


def _outcome(act: Callable[[], Outcome]) -> tuple[Outcome | None, str | None]:
    """What it answers, or the code of what it was refused with."""
    try:
        return act(), None
    except Refusal as refused:
        return None, refused.code


def _changed(scene: Scene) -> set[str]:
    """Which lists of the answer had somebody in them."""
    world = scene.world
    tried, done = _change(scene)
    before, were = dump(world.client), {one.id: one.status for one in scene.requests()}
    told, refused = _outcome(lambda: tried(trying(world)))
    assert dump(world.client) == before
    assert refused == _outcome(done)[1]
    if told is None:
        return {"refused"}
    scene.settle()
    moved = {one.id: (were[one.id], one.status) for one in scene.requests() if one.status != were[one.id]}
    came = {
        "granted": {one for one, (was, now) in moved.items() if was == "queued" and now in HOLDING_STATES},
        "preempted": {
            one for one, (was, now) in moved.items() if was == "allocated" and now in ("preempting", "preempted", "queued")
        },
        "reprieved": {one for one, (was, now) in moved.items() if (was, now) == ("preempting", "allocated")},
        "rejected": {one for one, (_, now) in moved.items() if now == "rejected"},
        "ended": {one for one, (_, now) in moved.items() if now in ("cancelled", "released", "expired")},
    }
    assert {name: set(getattr(told, name)) for name in came} == came
    return {name for name, some in came.items() if some}
