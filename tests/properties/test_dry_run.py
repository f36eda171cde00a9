"""The outcome of a dry run is that of the real change, and a dry run writes nothing."""

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

SCRATCH, FIRST = ThrowawayRedis(), 120
"""From there on changes of every kind come soon."""


def trying(world: World) -> DryRun:
    return DryRun(WorkspaceCopier(world.client, SCRATCH, world.clock), world.limits)


def test_a_submit_comes_to_what_was_said(servers: Servers) -> None:
    outcomes: Counter[str] = Counter()
    for number in range(SCENES // 2):
        scene = Scene(World(servers.client("embedded")), number, pools=2)
        outcomes[_tried(scene)] += 1
    assert {"allocated", "preempts", "queued", "rejected"} == outcomes.keys(), outcomes


def _tried(scene: Scene) -> str:
    world = scene.world
    before, (component, fields) = dump(world.client), scene.ask()
    result = trying(world).submit(world.workspace, world.request_spec(component, **fields))
    assert dump(world.client) == before
    last = world.ledger.get_last_event_id(world.workspace)
    request = world.submit(component, **fields)
    scene.settle()
    events = world.ledger.read_events(world.workspace, last, 1000)
    victims = list(dict.fromkeys(event.request for event in events if event.by == request.id and event.request != request.id))
    now = world.get(request)
    status = "allocated" if now.status in HOLDING_STATES else str(now.status)
    assert result.outcome == ("preempts" if victims else status)
    assert [victim for victim, _ in result.victims] == victims
    assert (result.request.status, result.request.position, result.request.pool) == (now.status, now.position, now.pool)
    assert [view.status.wait_reason for view in result.views] == [
        view.status.wait_reason for view in scene.explain(request).pools
    ]
    return result.outcome


def test_a_change_comes_to_what_was_said(servers: Servers) -> None:
    outcomes: Counter[str] = Counter()
    for number in range(FIRST, FIRST + SCENES // 4):
        outcomes.update(_changed(Scene(World(servers.client("embedded")), number, pools=2)))
    assert {"granted", "preempted", "reprieved", "rejected", "ended", "refused"} == outcomes.keys(), outcomes


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
        fields = {"priority": draw.randint(0, 9), "limit": draw.choice(({}, {"gpu": 1}, {"gpu": 3}))}
        policy = PolicyDeclaration.model_validate({"component": draw.choice(COMPONENTS), **fields})
        return lambda t: t.set_policy(where, pool, policy), lambda: world.policy(policy.component, pool, **fields)
    states = ("queued",) if kind == "cancel" else ("queued", "allocated", "preempting")
    request = draw.choice([request for request in scene.requests() if request.status in states] or scene.requests())
    if kind == "cancel":
        return lambda t: t.cancel(where, request.id), lambda: world.cancel(request)
    return lambda t: t.drop(where, request.id), lambda: world.drop(request)


def _outcome(act: Callable[[], Outcome]) -> tuple[Outcome | None, str | None]:
    """Return the outcome, or the code of the refusal."""
    try:
        return act(), None
    except Refusal as refused:
        return None, refused.code


def _changed(scene: Scene) -> set[str]:
    """Return the lists of the outcome that are not empty."""
    world = scene.world
    tried, done = _change(scene)
    before, were = dump(world.client), {request.id: request.status for request in scene.requests()}
    result, refused = _outcome(lambda: tried(trying(world)))
    assert dump(world.client) == before
    assert refused == _outcome(done)[1]
    if result is None:
        return {"refused"}
    scene.settle()
    moved = {
        request.id: (were[request.id], request.status) for request in scene.requests() if request.status != were[request.id]
    }
    came = {
        "granted": {request for request, (was, now) in moved.items() if was == "queued" and now in HOLDING_STATES},
        "preempted": {
            request
            for request, (was, now) in moved.items()
            if was == "allocated" and now in ("preempting", "preempted", "queued")
        },
        "reprieved": {request for request, (was, now) in moved.items() if (was, now) == ("preempting", "allocated")},
        "rejected": {request for request, (_, now) in moved.items() if now == "rejected"},
        "ended": {request for request, (_, now) in moved.items() if now in ("cancelled", "released", "expired")},
    }
    assert {name: set(getattr(result, name)) for name in came} == came
    return {name for name, ids in came.items() if ids}
