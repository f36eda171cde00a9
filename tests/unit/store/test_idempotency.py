"""A repeated call has no further effect: by an idempotency key, its own id, the state that it finds, or an operation id.

Lua decides this, not the server, and each test here reads a large workspace three times: two backends are enough.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from app.domain.declaration import PolicyDeclaration, PoolDeclaration
from app.domain.declaration_diff import DeclarationStep
from app.domain.errors import Conflict, NotFound
from app.domain.models import Request
from app.domain.specs import PoolSpec, RequestSpec
from app.store import codec, declaration_codec
from app.store.lua_linker import load_commands
from tests.support.recorded_world import Recording
from tests.support.world import World

pytestmark = pytest.mark.backends("fake", "embedded")


def test_one_key_and_body_make_one_request(world: World) -> None:
    world.pool(gpu=2)
    world.policy(priority=1)
    a = world.submit(gpu=1, key="k1", lease_s=10)
    before = world.state()
    assert world.submit(gpu=1, key="k1", lease_s=10) == a
    with pytest.raises(Conflict) as error:
        world.submit(gpu=2, key="k1")
    assert (error.value.code, world.state(), world.used()) == ("idempotency_conflict", before, {"gpu": 1})
    assert str(error.value) == "this idempotency key was sent with another body before"


def test_a_repeated_submit_tells_what_became_of_the_request(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    a, b = world.submit(gpu=1, key="a"), world.submit(gpu=1, key="b", lease_s=10)
    assert world.submit(gpu=1, key="b", lease_s=10) == b
    world.release(a)
    world.clock.advance(5)
    again = world.submit(gpu=1, key="b", lease_s=10)
    assert (again.status, again.lease_expires_ms, again.fence) == ("allocated", world.clock.now_ms() + 5000, 2)
    assert world.submit(gpu=1, key="a").status == "released"


def test_bodies_are_compared_by_what_they_say(world: World) -> None:
    world.pool(gpu=1, tpu=1)
    world.policy()
    a = world.submit(key="k", gpu=1, tpu=1)
    assert world.submit(key="k", resources={"tpu": 1, "gpu": 1}, preemptible=True, retries=3).id == a.id
    for other in ({"retries": 2}, {"labels": {"a": "b"}}, {"preemptible": False}, {"walltime_s": 9}):
        with pytest.raises(Conflict):
            world.submit(key="k", gpu=1, tpu=1, **other)


@pytest.mark.parametrize("key", ["k", " ", "a b:c|d{e}", "x" * 255, '"\\'])
def test_any_printable_key_does(world: World, key: str) -> None:
    world.pool(gpu=2)
    world.policy()
    assert world.submit(gpu=1, key=key).id == world.submit(gpu=1, key=key).id
    assert world.used() == {"gpu": 1}


def test_keys_of_one_batch_count_among_each_other(world: World) -> None:
    world.pool(gpu=4)
    world.policy()
    asks = [
        ("a" * 20, world.request_spec(gpu=1), "k"),
        ("b" * 20, world.request_spec(gpu=1), "k"),
        ("c" * 20, world.request_spec(gpu=2), "k"),
    ]
    first, second, third = world.ledger.submit_all(world.workspace, asks)
    assert isinstance(first, Request)
    assert (first, getattr(third, "code", None), world.used()) == (second, "idempotency_conflict", {"gpu": 1})


def test_a_key_of_a_request_long_gone_is_free_again(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    a = world.submit(gpu=1, key="k")
    world.release(a)
    world.pass_time(8 * 86_400)
    b = world.submit(gpu=1, key="k")
    assert (b.id != a.id, b.status) == (True, "allocated")


def test_an_own_id_is_taken_once(world: World) -> None:
    world.pool(gpu=4)
    world.policy()
    a = world.submit(gpu=1, own_id="me")
    before = world.state()
    assert world.submit(gpu=1, own_id="me") == a
    with pytest.raises(Conflict) as error:
        world.submit(gpu=2, own_id="me")
    assert (error.value.code, world.state()) == ("id_taken", before)


def test_release_cancel_and_drop_say_the_first_outcome_again(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    a, b, c = (world.submit(gpu=1) for _ in range(3))
    cancelled, released = world.cancel(b), world.release(a, outcome="failed")
    dropped = world.drop(c)
    before = world.state()
    world.clock.advance(5)
    again = [world.cancel(b), world.ledger.release(world.workspace, a.id, 1, "succeeded"), world.drop(c)]
    assert (again, world.state()) == ([cancelled, released, dropped], before)


# ---- every command, called twice, as after a lost answer

Args = Callable[[dict[str, Request]], dict[str, Any]]


def story(world: World) -> dict[str, Request]:
    """Create data of every kind, and let time pass."""
    world.pool(gpu=4, settings={"patience_s": 30})
    world.pool("spare", gpu=1)
    world.group("g", reserved={"gpu": 2})
    world.group("h")
    world.policy("t", group="g", reserved={"gpu": 1})
    world.policy("u")
    world.policy("gone")
    world.call("create_token", digest="d", name="ci", record='{"id":"1","name":"ci"}', lasts_s=60)
    story = {"held": world.submit("t", gpu=3, lease_s=100), "short": world.submit("u", gpu=1, lease_s=10)}
    story |= {
        "big": world.submit("t", gpu=4),
        "small": world.submit("u", gpu=1),
        "last": world.submit("u", gpu=2, queue_ttl_s=5),
    }
    story |= taking_back(world) | parked(world)
    world.clock.advance(50)
    return story


@pytest.fixture(scope="module")
def recordings() -> dict[str, Recording[dict[str, Request]]]:
    """Return the recorded data of each backend: they are created once, and restored for every other test."""
    return {}


@pytest.fixture
def of(world: World, backend: str, recordings: dict[str, Recording[dict[str, Request]]]) -> dict[str, Request]:
    """Return the requests of the recorded data."""
    if backend in recordings:
        return recordings[backend].restore(world)
    recordings[backend] = Recording.of(world, story(world))
    return recordings[backend].result


def parked(world: World) -> dict[str, Request]:
    """Create tasks in a pool of their own: sent but not begun, begun, waiting, delayed, and cancelled."""
    world.pool("tasks", gpu=2)
    world.policy("tasks", "tasks")
    for task, due in (("sent", None), ("begun", None), ("waits", None), ("later", 99_000)):
        world.call("park_task", **_park(task, due and world.clock.now_ms() + due))
    requests = {task: world.get(f"of-{task}") for task in ("sent", "begun", "waits")}
    world.call("park_task", **_park("over"))
    world.call("cancel_task", task="over")
    world.call("mark_dispatched", sent=json.dumps([["sent", str(requests["sent"].fence), 1]]), start_ms=1000)
    world.call("start", id="of-begun", fence=requests["begun"].fence, runner="w")
    return requests


def _park(task: str, due_ms: int | None = None) -> dict[str, Any]:
    fields = [*codec.encode_request("ask", RequestSpec(component="tasks", resources={"gpu": 1}), None)["fields"], "task", task]
    named = {"task": task, "name": "x", "id": f"of-{task}", "spec": json.dumps(fields), "message": "m", "most": 3}
    return {
        **named,
        "remember_s": 60,
        "key": f"key-{task}",
        "digest": "d",
        "replaced": "",
        "fence": "",
        "due_ms": due_ms,
        "limits": "",
    }


def taking_back(world: World) -> dict[str, Request]:
    """Create pools with a possible preemption, victims with and without a waiter, and a hold that cannot be filled."""
    for pool, gpu in (("prey", 2), ("leave", 4), ("want", 2), ("over", 2)):
        world.pool(pool, gpu=gpu)
        world.policy(f"low-{pool}", pool)
        world.policy(f"high-{pool}", pool, priority=1)
    world.call("begin_reconcile", token="a", ttl_ms=60_000, why="tick")
    story = {name: world.submit("low-leave", gpu=2, checkpoint=how) for name, how in (("leaving", "none"), ("stray", "auto"))}
    story |= {"served": world.submit("high-leave", gpu=2), "gone": world.submit("high-leave", gpu=2)}
    world.preempt(story["served"], story["leaving"], pool="leave")
    world.preempt(story["gone"], story["stray"], pool="leave")
    world.cancel(story["gone"])
    story |= {"lost": world.submit("low-want", gpu=1), "wants": world.submit("low-want", gpu=1)}
    story["wanting"] = world.submit("high-want", gpu=1)
    world.preempt(story["wanting"], story["lost"], pool="want")
    world.update_pool("want", gpu=1)
    story["over"] = world.submit("low-over", gpu=2)
    world.update_pool("over", gpu=1)
    return story | {"prey": world.submit("low-prey", gpu=2), "hunter": world.submit("high-prey", gpu=2)}


def _preempt(of: dict[str, Request]) -> dict[str, Any]:
    victims = json.dumps([[of["prey"].id, str(of["prey"].fence), "priority"]])
    nothing = {"unused_share_accounts": "[]", "reserved_accounts": "[]", "stack_exits": "[]", "used_ranges": "[]"}
    whole = {"continues": False, "rest_count": 0, "rest_units": "{}"}
    return {"pool": "prey", "waiter": of["hunter"].id, "victims": victims, "rules": "7", **whole, **nothing}


_ROWS = json.dumps([["policy:orchestrator/u", ["fair_share:gpu", "1", "status", "starving"], ["below_ms"]]])


def _evict(of: dict[str, Request]) -> dict[str, Any]:
    return {"pool": "over", "victims": json.dumps([[of["over"].id, str(of["over"].fence), "pool"]]), "rules": "15"}


def _release(request: Request, outcome: str) -> dict[str, Any]:
    return {"allocations": json.dumps([[request.id, str(request.fence), outcome]])}


def _checkpoint(state: str, seconds: int = 0, routine: str = "") -> Args:
    def args(of: dict[str, Request]) -> dict[str, Any]:
        stray = of["stray"]
        fields = {"state": state, "seconds": seconds, "reference": "r", "routine": routine}
        return {"op": "o", "id": stray.id, "fence": stray.fence, **fields}

    return args


def _submit(_: dict[str, Request]) -> dict[str, Any]:
    spec = RequestSpec(component="u", resources={"gpu": 1})
    return {
        "remember_s": 60,
        "specs": json.dumps([codec.encode_request("one", spec, "k"), codec.encode_request("two", spec, None)]),
        "with_status": False,
    }


def _submit_with_status(_: dict[str, Request]) -> dict[str, Any]:
    spec = RequestSpec(component="u", resources={"gpu": 1})
    return {"remember_s": 60, "specs": json.dumps([codec.encode_request("one", spec, "k")]), "with_status": True}


def _declare(_: dict[str, Request]) -> dict[str, Any]:
    new = PoolDeclaration(name="q", capacity={"gpu": 2}, policies=[PolicyDeclaration(component="u", reserved={"gpu": 2})])
    return {"op": "o", "changes": declaration_codec.encode_steps([DeclarationStep(None, new)])}


_NEW = {"op": "o", "reserved": "gpu=1", "limit": "gpu=2", "weight": 2, "pool": "p", "settings": "[]"}
TWICE: dict[str, Args] = {
    "list_active": lambda _: {"pool": "p", "after": 0, "count": 2},
    "resume_unfinished": lambda _: {},
    "audit_holds": lambda _: {"pool": "leave", "kind": "allocations", "owner": "", "cursor": "0", "count": 100, "repair": True},
    "start_sums": lambda _: {"pool": "leave"},
    "read_sum_rows": lambda _: {"pool": "leave", "kind": "holds", "cursor": "0", "count": 100},
    "read_sum_changes": lambda _: {"pool": "leave", "event": "0-0", "number": 0, "rules": "9", "most": 9},
    "repair_sums": lambda _: {"pool": "leave", "rules": "0", "corrections": "[]"},
    "audit_index": lambda _: {"kind": "pool_queue", "part": "p", "cursor": "0", "count": 100, "repair": True},
    "audit_lanes": lambda _: {"pool": "p", "cursor": "0", "lanes": "[]", "count": 100, "repair": True},
    "audit_requests": lambda _: {"after": -1, "count": 100, "repair": True},
    "cancel": lambda of: {"id": of["big"].id},
    "checkpoint": _checkpoint("completed"),
    "list_component_pools": lambda _: {"component": "orchestrator/t"},
    "copy_workspace": lambda _: {"event": "1-1", "pools": "[]", "since": 0, "most": 100},
    "start_copy": lambda _: {"most": 100},
    "list_live_ids": lambda _: {"kind": "leases", "cursor": "0", "count": 100},
    "copy_accounts": lambda _: {"pool": "leave", "kind": "policies", "cursor": "0", "count": 100},
    "rebuild_queue": lambda _: {"waiters": "[]", "lanes": "[]"},
    "unsettle_pools": lambda _: {"rechecked": "[]"},
    "copy_requests": lambda of: {"ids": json.dumps([of["held"].id, of["big"].id])},
    "read_counters": lambda _: {},
    "read_deadlines": lambda _: {},
    "declare": _declare,
    "read_demand": lambda _: {"pool": "p", "after": 0, "count": 10},
    "enforce_deadlines": lambda _: {},
    "drop": lambda of: {"id": of["held"].id},
    "evict_over_limit": _evict,
    "read_events": lambda _: {"after": "0", "count": 3},
    "explain": lambda of: {"id": of["last"].id},
    "get_requests": lambda of: {"ids": json.dumps([of["held"].id, of["big"].id])},
    "delete_group": lambda _: {"op": "o", "pool": "p", "group": "h"},
    "set_group": lambda _: {"group": "new", "parent": "", **_NEW},
    "heartbeat": lambda of: {"id": of["held"].id, "fence": 1},
    "read_usage_history": lambda _: {"pool": "p", "cursor": "0", "count": 100},
    "end_hold": lambda of: {"pool": "want", "owner": of["wanting"].id},
    "list_components": lambda _: {"pool": "p", "cursor": "0", "count": 100},
    "list_lanes": lambda _: {"component": "orchestrator/low", "cursor": "0", "count": 100},
    "get_last_event_id": lambda _: {},
    "release_job_lock": lambda _: {"job": "audit", "token": "a"},
    "take_job_lock": lambda _: {"job": "audit", "token": "a", "ttl_ms": 60_000},
    "list_requests": lambda _: {"before": 2**53 - 1, "count": 2, "scan": 4, "filter": '{"status": {"queued": true}}'},
    "get_request": lambda of: {"id": of["last"].id, "poll": True},
    "read_pool_metrics": lambda _: {"pool": "p", "cursor": "0", "components": "[]", "count": 10},
    "count_requests": lambda _: {},
    "count_matching_requests": lambda _: {"before": 2**53 - 1, "scan": 4, "filter": '{"text": "u"}'},
    "read_queue_positions": lambda of: {"ids": json.dumps([of["last"].id, of["big"].id])},
    "read_latest_events": lambda _: {"last": "+", "count": 3},
    "read_clock": lambda _: {},
    "begin_reconcile": lambda _: {"token": "a", "ttl_ms": 60_000, "why": "tick"},
    "claim_nudge": lambda _: {},
    "finish_reconcile": lambda _: {"token": "a", "next": "b", "ttl_ms": 60_000, "took_ms": 1, "found": "more"},
    "mark_dispatched": lambda of: {"sent": json.dumps([["sent", str(of["sent"].fence), 2]]), "start_ms": 1000},
    "mark_dispatch_failed": lambda _: {"tasks": '["sent"]', "again_ms": 1000},
    "take_outbox": lambda _: {"count": 9, "claim_ms": 1000, "start_ms": 1000, "tries": 3, "ids": '["n1","n2","n3"]'},
    "measure_outbox": lambda _: {},
    "park_task": lambda _: _park("new"),
    "give_patience_hold": lambda _: {"pool": "p", "first": 0, "best": "", "count": 10},
    "delete_policy": lambda _: {"op": "o", "pool": "p", "component": "orchestrator/gone"},
    "audit_templates": lambda _: {
        "pool": "p",
        "kind": "policies",
        "template": "",
        "cursor": "0",
        "count": 9,
        "repair": True,
    },
    "delete_idle_policies": lambda _: {"pool": "p", "template": "orchestrator/t", "count": 9},
    "set_policy": lambda _: {"component": "x/y", "priority": 3, "profile": "batch", "group": "", **_NEW},
    "create_pool": lambda _: {
        "op": "o",
        "name": "q",
        "description": "d",
        "capacity": "gpu=1",
        "settings": '{"patience_s":"1"}',
    },
    "delete_pool": lambda _: {"op": "o", "name": "spare"},
    "update_pool": lambda _: {"name": "p", "description": "=d", "capacity": "gpu=5", "settings": '{"patience_s":""}'},
    "get_pool": lambda _: {"name": "p", "kind": "groups", "cursor": "0", "count": 100},
    "list_pools": lambda _: {},
    "preempt": _preempt,
    "write_fair_shares": lambda _: {"pool": "p", "rows": _ROWS, "watched": "1", "rules": "5"},
    "list_queue": lambda _: {"pool": "p", "after": -(2**53), "count": 2},
    "release": lambda of: {"allocations": json.dumps([[of["held"].id, "1", "succeeded"]])},
    "reassign_or_reprieve": lambda of: {"pool": "leave", "id": of["stray"].id, "fence": str(of["stray"].fence), "owner": None},
    "read_run_times": lambda _: {"pool": "p", "components": '["orchestrator/t"]'},
    "sample_usage": lambda _: {"pool": "p", "apart_ms": 1, "most": 2, "listed": 9},
    "read_snapshot": lambda _: {
        "pool": "leave",
        "most": 10,
        "anyway": False,
        "max_allocations": 9,
        "max_accounts": 9,
        "max_lanes": 9,
        "max_changes": 9,
        "event": "",
        "number": "",
        "force": False,
    },
    "read_allocations": lambda _: {"pool": "leave", "after": "-inf", "count": 9},
    "read_accounts": lambda _: {"pool": "leave", "kind": "policy", "cursor": "0", "count": 9},
    "read_waiters": lambda _: {"pool": "leave", "lanes": '["orchestrator/low|p|gpu=1,step_run=1"]', "lane_count": 1, "most": 9},
    "read_changes": lambda _: {"pool": "leave", "event": "0-0", "number": 0, "most": 9},
    "start": lambda of: {"id": "of-sent", "fence": of["sent"].fence, "runner": "w"},
    "submit": _submit,
    "clean_up": lambda _: {"retention_s": 100, "available_since_ms": "", "expected": ""},
    "record_refused_poll": lambda of: {"id": of["last"].id, "components": '["orchestrator/u"]'},
    "record_availability": lambda _: {"gap_s": 15},
    "read_availability": lambda _: {"gap_s": 15},
    "cancel_task": lambda _: {"task": "waits"},
    "acknowledge_end": lambda _: {"task": "over", "request": "of-over"},
    "get_task": lambda _: {"task": "begun"},
    "throttle": lambda _: {"token": "t", "per_s": 1},
    "charge": lambda _: {"op": "o", "token": "t", "per_s": 1, "count": 2},
    "create_token": lambda _: {"digest": "e", "name": "new", "record": '{"id":"2","name":"new"}', "lasts_s": 60},
    "find_token": lambda _: {"digest": "d"},
    "list_tokens": lambda _: {},
    "revoke_token": lambda _: {"op": "o", "id_or_name": "ci"},
    "update_workspace": lambda _: {"settings": '{"unmanaged":"allow"}'},
    "get_workspace": lambda _: {},
    "count_subject_waiters": lambda _: {"subject": "token/a"},
    "audit_waiting": lambda _: {"kind": "waiting", "cursor": "0", "count": 10, "repair": True},
    "audit_subject": lambda _: {"kind": "waiting", "subject": "token/a", "cursor": "0", "count": 10, "repair": True},
    "audit_shapes": lambda _: {"cursor": "0", "count": 10, "repair": True},
    "audit_bodies": lambda _: {"bytes": 0, "saved": 0, "deleted": 0, "repair": False},
    "sum_bodies": lambda _: {"kind": "requests", "cursor": "-1", "count": 10},
    "list_subjects": lambda _: {},
    "adopt": lambda _: {"stored": ""},
    "depose": lambda _: {"id": "", "lasts_ms": 1},
}
SAYS_WHAT_IT_DID_ITSELF = {
    "enforce_deadlines",
    "claim_nudge",
    "take_outbox",
    "park_task",
    "give_patience_hold",
    "sample_usage",
    "submit",
    "clean_up",
    "acknowledge_end",
    "throttle",
    "get_request",
}
"""Their answers tell what this very call did (made, given, ended …) or the poll before it, so that the second differs."""


STALE_THE_SECOND_TIME = {"evict_over_limit", "end_hold", "preempt", "reassign_or_reprieve"}
"""The steps of a plan: after the first call, their conditions do not hold any more."""


def normalised(answer: Any) -> Any:
    """Return a reply with its requests as mappings; of a repeated name the last value counts."""
    if isinstance(answer, dict):
        return {name: normalised(value) for name, value in answer.items()}
    if isinstance(answer, list):
        return codec.to_mapping(answer) if "component" in answer[::2] else [normalised(value) for value in answer]
    return answer


def test_every_command_is_tried_twice() -> None:
    assert TWICE.keys() == load_commands().keys()


def everything(world: World, command: str) -> dict[str, Any]:
    """Return all data, but not the counter of a pool's rewritten rules if the call has no id."""
    state = world.state()
    if command == "update_pool":
        for full_key in ("pk:{test}:meta", "pk:{test}:pool:p"):
            state[full_key] = {name: value for name, value in state[full_key].items() if name != "rules"}
    return state


@pytest.mark.parametrize("command", sorted(TWICE))
def test_a_call_twice_is_once(world: World, of: dict[str, Request], command: str) -> None:
    args = TWICE[command](of)
    first = world.call(command, **args)
    after = everything(world, command)
    second = world.call(command, **args)
    assert everything(world, command) == after
    if command in STALE_THE_SECOND_TIME:
        assert (first.tag, second.tag) == ("applied", "stale")
    elif command not in SAYS_WHAT_IT_DID_ITSELF:
        assert normalised(second.fields) == normalised(first.fields)
        assert second.tag == first.tag


VARIANTS: dict[str, tuple[str, Args]] = {
    "a submit with the status": ("submit", _submit_with_status),
    "a lost worker": ("release", lambda of: {"allocations": json.dumps([["of-begun", str(of["begun"].fence), "lost"]])}),
    "a look at a waiter": ("get_request", lambda of: {"id": of["last"].id, "poll": False}),
    "progress": ("checkpoint", _checkpoint("progress")),
    "saved on the way": ("checkpoint", _checkpoint("completed", routine="1")),
    "a task that is granted is given up": ("cancel_task", lambda _: {"task": "sent"}),
    "failed": ("checkpoint", _checkpoint("failed")),
    "defer": ("checkpoint", _checkpoint("defer", 10)),
    "vacated": ("release", lambda of: _release(of["stray"], "vacated")),
    "finished": ("release", lambda of: _release(of["leaving"], "succeeded")),
    "a holder on its way out is dropped": ("drop", lambda of: {"id": of["leaving"].id}),
    "a heartbeat on the way out": ("heartbeat", lambda of: {"id": of["leaving"].id, "fence": of["leaving"].fence}),
}


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_what_is_said_of_leaving_is_said_once(world: World, of: dict[str, Request], variant: str) -> None:
    command, args = VARIANTS[variant]
    values = args(of)
    first, after = world.call(command, **values), world.state()
    assert normalised(world.call(command, **values).fields) == normalised(first.fields)
    assert world.state() == after


def test_the_owner_of_a_hold_leaves_the_queue_once(world: World, of: dict[str, Request]) -> None:
    owner = of["served"]
    cancelled, after = world.cancel(owner), world.state()
    assert (world.cancel(owner), world.state()) == (cancelled, after)


def test_a_step_passed_on_twice_is_stale(world: World, of: dict[str, Request]) -> None:
    args = {"pool": "leave", "id": of["stray"].id, "fence": str(of["stray"].fence), "owner": of["served"].id}
    first, after = world.call("reassign_or_reprieve", **args), world.state()
    assert (first.tag, world.call("reassign_or_reprieve", **args).tag, world.state()) == ("applied", "stale", after)


def test_a_change_done_twice_is_not_done_to_what_came_between(world: World) -> None:
    world.call("create_pool", op="1", name="p", description="", capacity="gpu=1", settings="[]")
    world.call("delete_pool", op="2", name="p")
    world.call("create_pool", op="3", name="p", description="", capacity="gpu=2", settings="[]")
    assert world.call("delete_pool", op="2", name="p").tag == "deleted"
    assert world.call("create_pool", op="1", name="p", description="", capacity="gpu=1", settings="[]").tag == "created"
    assert world.get_pool().capacity == {"gpu": 2}


def test_an_operation_that_is_named_may_be_repeated_by_its_caller(world: World) -> None:
    spec = PoolSpec(name="p", capacity={"gpu": 1})
    for _ in range(2):
        world.ledger.create_pool(world.workspace, spec, operation="made")
    with pytest.raises(Conflict):
        world.ledger.create_pool(world.workspace, spec, operation="other")
    world.policy()
    for _ in range(2):
        world.ledger.delete_policy(world.workspace, "p", "orchestrator/t", operation="parted")
        world.ledger.delete_pool(world.workspace, "p", operation="gone")
    with pytest.raises(NotFound):
        world.ledger.delete_pool(world.workspace, "p")
