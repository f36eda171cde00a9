"""A small workspace in which all requests ask for the same few units, with every operation in any order.

An operation names its subject by a number, modulo the number of subjects, so that any part of a history is a history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from app.domain.errors import Conflict, LimitReached, NotFound, Refusal, StaleFence
from app.domain.ledger_limits import MAX_STEPS
from app.domain.specs import RequestSpec, WorkspaceSettings
from app.store.connection import RedisClient
from app.store.usage_samples import UsageSampleStore
from tests.properties.calls import Calls, Died, a_world
from tests.properties.invariants import Checker
from tests.properties.oracle import LIVE, Request
from tests.properties.usage import MAX_SAMPLES
from tests.support.world import World, full_component

KEYS = ("gpu", "lic", "mcpu", "step_run")
POOLS = ("p", "q", "r")
COMPONENTS = ("t", "t-b", "u")
TENANTS = ("t-x", "n-1", "n-2")
"""Components that have a policy only if a template makes one."""
TEMPLATES = ("t*", "t-*", "n-*", "*")
GROUPS = ("g", "h", "k")
Shapes = tuple[dict[str, int], ...]
NAMED_POOLS = (None, None, None, None, None, ["p"], ["p", "q"], ["q", "r", "s"])
"""The pools that a request names; there never is an `s`."""
SHAPES: Shapes = ({"gpu": 2}, {"gpu": 1}, {"gpu": 3}, {"gpu": 1, "lic": 1}, {"gpu": 1, "mcpu": 2}, {"mcpu": 3}, {})

few = st.integers(1, 4)
indexes = st.integers(0, 40)
rarely = st.sampled_from((False, False, False, False, True))
capacities = st.fixed_dictionaries(
    {"gpu": st.sampled_from((4, 3, 2))},
    optional={"lic": few, "mcpu": st.sampled_from((6, 4)), "step_run": st.sampled_from((5, 3))},
)
quantities = st.dictionaries(st.sampled_from(("gpu", "gpu", *KEYS)), st.sampled_from((3, 2, 1, 4, 0)), max_size=2)
shares = st.sampled_from(({}, {"gpu": 1}, {"gpu": 1, "step_run": 1}, {"gpu": 2}, {"mcpu": 2}))
limits = st.sampled_from(({}, {}, {"gpu": 3}, {"gpu": 2}, {"step_run": 2}, {"mcpu": 3}))
settings = st.fixed_dictionaries(
    {},
    optional={
        "order": st.sampled_from(("share_first", "priority_first")),
        "discipline": st.sampled_from(("reserved", "classes", "fair_share", "fair_share")),
        "queueing": st.sampled_from(("best_effort", "best_effort", "strict")),
        "patience_s": st.sampled_from((0, 3, 8, None)),
        "grace_s": st.sampled_from((0, 2, 6)),
        "checkpoint_timeout_s": st.sampled_from((2, 5)),
        "max_deferral_s": st.sampled_from((0, 4)),
        "requeue_failed_checkpoint": st.booleans(),
        "over_limit": st.sampled_from(("keep", "evict", None)),
        "over_limit_after_s": st.sampled_from((0, 3)),
        "starvation_timeout_s": st.sampled_from((0, 2)),
        "aggressive_starvation": st.booleans(),
        "backoff_s": st.sampled_from((0, None)),
        "template_max": st.sampled_from((1, 3)),
        "template_idle_s": st.sampled_from((2, 9)),
    },
)
BRIEF = {
    "patience_s": 2,
    "grace_s": 3,
    "checkpoint_timeout_s": 4,
    "over_limit_after_s": 2,
    "starvation_timeout_s": 2,
    "aggressive_starvation_timeout_s": 4,
    "backoff_s": 0,
    "template_max": 2,
    "template_idle_s": 4,
}
"""The settings of a pool that sets none, chosen so that much happens in a short history."""
BUDGETS = (MAX_STEPS, MAX_STEPS, 20, 60)
"""Work budgets. With a small one, a preemption of two victims is made in parts."""
new_settings = settings.map(lambda chosen: {**BRIEF, **chosen})
own_settings = st.fixed_dictionaries({}, optional={"over_limit": st.sampled_from(("keep", "evict"))})
numbers = st.fixed_dictionaries(
    {"reserved": quantities | shares, "limit": quantities | limits | limits, "weight": st.sampled_from((1, 1, 2, 5))},
    optional={"settings": own_settings},
)
parents = st.sampled_from((None, *GROUPS))
asks = st.fixed_dictionaries(
    {
        "component": st.sampled_from((*COMPONENTS * 3, *TENANTS, "unconnected")),
        "resources": st.sampled_from(SHAPES),
        "pools": st.sampled_from(NAMED_POOLS),
        "preemptible": st.sampled_from((True, True, True, False)),
        "preemption_class": st.sampled_from((1, 5, 5, 9)),
        "checkpoint": st.sampled_from(("none", "manual", "auto")),
        "retries": st.sampled_from((0, 1, 2, -1)),
        "walltime_s": st.sampled_from((None, None, 1, 4, 10)),
        "lease_s": st.sampled_from((None, None, 4, 15)),
        "queue_ttl_s": st.sampled_from((None, None, 6, 30)),
    },
)
batches = st.lists(asks, min_size=2, max_size=8)
how = st.sampled_from(("", "", "", "", "twice", "dying"))
policy_arguments: dict[str, Any] = {
    "pool": indexes, "fields": numbers, "priority": st.integers(0, 3), "group": parents, "wild": rarely, "how": how,
}  # fmt: skip


def there_is(*statuses: str) -> Callable[[Any], bool]:
    """Return a condition: there is a request in one of these states."""
    return lambda machine: any(request.status in statuses for request in machine.checker.model.requests.values())


class Histories(RuleBasedStateMachine):
    """Random histories on one client, which the test sets in a subclass."""

    client: RedisClient

    def __init__(self) -> None:
        super().__init__()
        self.client.flushall()
        self.world = World(self.client)
        self.calls: Calls = a_world(self.world, 200)
        self.checker = Checker(self.world)
        self.specs: dict[str, RequestSpec] = {}

    # how an operation is done

    def _do(self, how: str, operation: Callable[[], Any]) -> Any:
        """Return the reply or the refusal, None of a caller that died; then check everything."""
        self.calls.twice, self.calls.dying = how == "twice", how == "dying"
        answer: Any = None
        try:
            answer = operation()
        except Refusal as no:
            self.checker.unchanged()
            answer = no
        except Died:
            pass
        finally:
            self.calls.twice = self.calls.dying = False
        self.checker.check()
        return answer

    def _pick(self, which: int, *statuses: str) -> Request | None:
        ids = sorted(request.id for request in self.checker.model.requests.values() if request.status in statuses)
        return self.checker.model.requests[ids[which % len(ids)]] if ids else None

    def _pool(self, which: int) -> str:
        pools = sorted(self.checker.model.pools) or ["p"]
        return pools[which % len(pools)]

    def _group(self, pool: str, group: str | None) -> str | None:
        """Return a group of the pool, or None."""
        groups = sorted(name[6:] for name in self.checker.model.pools[pool].accounts if name.startswith("group:"))
        return groups[GROUPS.index(group) % len(groups)] if group and groups else None

    def _within(self, pool: str, fields: dict[str, Any], wild: bool) -> dict[str, Any]:
        """Return the fields with numbers that the pool's capacity allows, unless they shall be wild."""
        place = self.checker.model.pools.get(pool)
        if wild or not place:
            return fields
        fitted = {
            column: {key: min(units, place.capacity[key]) for key, units in fields[column].items() if key in place.capacity}
            for column in ("reserved", "limit")
        }
        reserved = {key: min(units, fitted["limit"].get(key, units)) for key, units in fitted["reserved"].items()}
        return {**fields, "reserved": reserved, "limit": fitted["limit"]}

    # the rules of the world

    @initialize(
        chunk=st.sampled_from((1, 2, 3, 200)),
        budget=st.sampled_from(BUDGETS),
        pools=st.lists(st.tuples(capacities, new_settings), min_size=1, max_size=3),
        policies=st.lists(st.tuples(indexes, shares, limits, few), min_size=5, max_size=7),
        crowd=batches,
    )
    def begin(self, chunk: int, budget: int, pools: list[Any], policies: list[Any], crowd: list[dict[str, Any]]) -> None:
        self.calls = a_world(self.world, chunk, budget)
        self.checker.served.partly = self.calls.partly
        for name, (capacity, chosen) in zip(POOLS, pools, strict=False):
            self.create_pool(name, capacity, chosen, "")
        for index, (pool, reserved, limit, priority) in enumerate(policies):
            fields = {"reserved": reserved if index else {}, "limit": limit}
            self.set_policy(COMPONENTS[index % 3], pool if index > 2 else 0, fields, priority, None, False, "")
        self.submit_batch(crowd, "")

    @rule(name=st.sampled_from(POOLS), capacity=capacities, chosen=new_settings, how=how)
    def create_pool(self, name: str, capacity: dict[str, int], chosen: dict[str, Any], how: str) -> None:
        taken = name in self.checker.model.pools
        answer = self._do(how, lambda: self.world.pool(name, chosen, **capacity))
        assert isinstance(answer, Conflict) == taken

    @rule(pool=indexes, capacity=quantities, chosen=settings, how=how)
    def change_pool(self, pool: int, capacity: dict[str, int], chosen: dict[str, Any], how: str) -> None:
        self._do(how, lambda: self.world.update_pool(self._pool(pool), chosen, **capacity))

    @rule(component=st.sampled_from(COMPONENTS), **policy_arguments)
    def set_policy(
        self, component: str, pool: int, fields: dict[str, Any], priority: int, group: str | None, wild: bool, how: str
    ) -> None:
        name = self._pool(pool)
        fitted_fields = self._within(name, fields, wild)
        over = group if wild or name not in self.checker.model.pools else self._group(name, group)
        self._do(how, lambda: self.world.policy(component, name, priority=priority, group=over, **fitted_fields))

    @rule(group=st.sampled_from(GROUPS), pool=indexes, fields=numbers, parent=parents, wild=rarely, how=how)
    def set_group(self, group: str, pool: int, fields: dict[str, Any], parent: str | None, wild: bool, how: str) -> None:
        name = self._pool(pool)
        fitted_fields = self._within(name, fields, wild)
        above = parent if wild or name not in self.checker.model.pools else self._group(name, parent)
        self._do(how, lambda: self.world.group(group, name, parent=above, **fitted_fields))

    @rule(component=st.sampled_from(TEMPLATES), **policy_arguments)
    def set_template(
        self, component: str, pool: int, fields: dict[str, Any], priority: int, group: str | None, wild: bool, how: str
    ) -> None:
        self.set_policy(component, pool, fields, priority, group, wild, how)

    @rule(component=st.sampled_from((*COMPONENTS, *TEMPLATES)), pool=indexes, how=how)
    def delete_policy(self, component: str, pool: int, how: str) -> None:
        self._do(
            how, lambda: self.world.ledger.delete_policy(self.world.workspace, self._pool(pool), full_component(component))
        )

    @rule(group=st.sampled_from(GROUPS), pool=indexes, how=how)
    def delete_group(self, group: str, pool: int, how: str) -> None:
        name = self._pool(pool)
        pool_group = self._group(name, group) if name in self.checker.model.pools else None
        self._do(how, lambda: self.world.ledger.delete_group(self.world.workspace, name, pool_group or group))

    @rule(pool=indexes, how=how)
    def delete_pool(self, pool: int, how: str) -> None:
        name, model = self._pool(pool), self.checker.model
        in_use = bool(name in model.pools and (model.queue(name) or model.holders(name)))
        answer = self._do(how, lambda: self.world.ledger.delete_pool(self.world.workspace, name))
        assert isinstance(answer, Conflict) or not in_use

    @rule(unmanaged=st.sampled_from(("allow", "reject")))
    def configure(self, unmanaged: str) -> None:
        change = WorkspaceSettings.model_validate({"unmanaged": unmanaged})
        self._do("", lambda: self.world.ledger.update_workspace(self.world.workspace, change))

    # requests

    def _ask(self, fields: dict[str, Any]) -> RequestSpec:
        return self.world.request_spec(**fields)

    @rule(fields=asks, how=how)
    def submit(self, fields: dict[str, Any], how: str) -> None:
        id_ = f"n{len(self.specs):04}"
        self.specs[id_] = self._ask(fields)
        answer = self._do(how, lambda: self.world.ledger.submit(self.world.workspace, self.specs[id_], own_id=id_))
        assert answer is None or isinstance(answer, LimitReached) or answer.id == id_

    @rule(batch_fields=batches, how=how)
    def submit_batch(self, batch_fields: list[dict[str, Any]], how: str) -> None:
        batch = {f"n{len(self.specs) + index:04}": self._ask(fields) for index, fields in enumerate(batch_fields)}
        self.specs.update(batch)
        submissions = [(id_, ask, None) for id_, ask in batch.items()]
        self._do(how, lambda: self.world.ledger.submit_all(self.world.workspace, submissions))

    @precondition(there_is("queued", *LIVE))
    @rule(which=indexes, how=how)
    def submit_again(self, which: int, how: str) -> None:
        ids = sorted(set(self.specs) & set(self.checker.model.requests))
        if ids:
            id_ = ids[which % len(ids)]
            answer = self._do(how, lambda: self.world.ledger.submit(self.world.workspace, self.specs[id_], own_id=id_))
            assert answer is None or answer.id == id_
            self.checker.unchanged()

    @rule(fields=asks, key=st.sampled_from(("k1", "k2")), how=how)
    def submit_with_key(self, fields: dict[str, Any], key: str, how: str) -> None:
        id_ = f"n{len(self.specs):04}"
        first = self.checker.snapshot.get("idempotency", key).partition(" ")[0]
        first_spec = self.specs[first] if first in self.checker.model.requests else None
        self.specs[id_] = self._ask(fields)
        answer = self._do(how, lambda: self.world.ledger.submit(self.world.workspace, self.specs[id_], key, id_))
        if first_spec is None:
            assert answer is None or isinstance(answer, LimitReached) or answer.id == id_
        elif first_spec == self.specs[id_]:
            assert answer is None or answer.id == first
        else:
            assert answer is None or isinstance(answer, Conflict)

    @precondition(there_is(*LIVE))
    @rule(which=indexes, how=how)
    def release(self, which: int, how: str) -> None:
        if request := self._pick(which, *LIVE):
            answer = self._do(how, lambda: self.world.ledger.release(self.world.workspace, request.id, request.fence))
            assert answer is None or answer.status == "released"

    # the usual, which a choice among all rules would make too rare

    @rule(fields=asks, how=how)
    def submit_more(self, fields: dict[str, Any], how: str) -> None:
        self.submit(fields, how)

    @rule(batch_fields=batches, how=how)
    def submit_more_at_once(self, batch_fields: list[dict[str, Any]], how: str) -> None:
        self.submit_batch(batch_fields, how)

    @rule(seconds=st.sampled_from((1, 3)))
    def pass_a_little_time(self, seconds: float) -> None:
        self.pass_time(seconds, "")

    @precondition(there_is(*LIVE))
    @rule(which=indexes, how=how)
    def release_more(self, which: int, how: str) -> None:
        self.release(which, how)

    @precondition(there_is(*LIVE))
    @rule(which=indexes, how=how)
    def release_still_more(self, which: int, how: str) -> None:
        self.release(which, how)

    @precondition(there_is(*LIVE, "queued"))
    @rule(which=indexes, off=st.sampled_from((-1, 1, 1000)), beat=st.booleans())
    def come_with_a_stale_fence(self, which: int, off: int, beat: bool) -> None:
        if request := self._pick(which, *LIVE, "released", "expired", "queued"):
            ledger = self.world.ledger
            act = ledger.heartbeat if beat else ledger.release
            assert isinstance(self._do("", lambda: act(self.world.workspace, request.id, request.fence + off)), StaleFence)

    @precondition(there_is(*LIVE))
    @rule(which=indexes, how=how)
    def beat(self, which: int, how: str) -> None:
        if request := self._pick(which, *LIVE):
            answer = self._do(how, lambda: self.world.ledger.heartbeat(self.world.workspace, request.id, request.fence))
            lease = self.specs[request.id].lease_s
            assert answer.lease_expires_ms == (self.world.clock.now_ms() + lease * 1000 if lease else None)

    @precondition(there_is("released", "expired"))
    @rule(which=indexes, how=how)
    def beat_too_late(self, which: int, how: str) -> None:
        if request := self._pick(which, "released", "expired"):
            answer = self._do(how, lambda: self.world.ledger.heartbeat(self.world.workspace, request.id, request.fence))
            assert isinstance(answer, StaleFence)

    @precondition(there_is("queued"))
    @rule(which=indexes, how=how)
    def cancel(self, which: int, how: str) -> None:
        if request := self._pick(which, "queued", "queued", "allocated"):
            answer = self._do(how, lambda: self.world.ledger.cancel(self.world.workspace, request.id))
            assert request.status == "queued" or isinstance(answer, Conflict)
            assert request.status != "queued" or answer is None or answer.status == "cancelled"

    @precondition(there_is("queued", *LIVE))
    @rule(which=indexes, how=how)
    def drop(self, which: int, how: str) -> None:
        if request := self._pick(which, "queued", "released", *LIVE):
            self._do(how, lambda: self.world.ledger.drop(self.world.workspace, request.id))

    @precondition(there_is("queued"))
    @rule(which=indexes)
    def poll(self, which: int) -> None:
        if request := self._pick(which, "queued", "allocated"):
            self._do("", lambda: self.world.get(request.id, poll=True))
            ttl = self.specs[request.id].queue_ttl_s
            due = self.checker.snapshot.get("waiting").get(request.id)
            assert request.status != "queued" or ttl is None or due == self.world.clock.now_ms() + ttl * 1000

    @rule(act=st.sampled_from(("cancel", "drop", "get_request")))
    def poll_an_absent_request(self, act: str) -> None:
        operation: Callable[[str, str], Any] = getattr(self.world.ledger, act)
        assert isinstance(self._do("", lambda: operation(self.world.workspace, "n9999")), NotFound)

    # time

    @rule(seconds=st.sampled_from((0.5, 1, 3, 5, 9, 30)), how=how)
    def pass_time(self, seconds: float, how: str) -> None:
        self.world.clock.advance(seconds)
        self._do(how, lambda: self.world.ledger.clean_up(self.world.workspace))
        for pool in sorted(self.checker.model.pools):
            UsageSampleStore(self.client, 4, MAX_SAMPLES, self.world.clock).sample_usage(self.world.workspace, pool)
            self._lose_patience(pool)

    def _lose_patience(self, pool: str) -> None:
        expected, busy, before = self.checker.impatient(pool), self.checker.snapshot.unfinished(), self.checker.model
        owner_id = self._do("", lambda: self.world.ledger.give_patience_hold(self.world.workspace, pool))
        if expected and not busy:
            queue = [request.id for request in before.queue(pool)]
            assert owner_id, f"{expected} lost patience in {pool}"
            assert queue.index(owner_id) <= queue.index(expected), (
                f"{owner_id} got the hold of {pool}, {expected} stands before"
            )
        if owner_id:
            request, patience_s = before.requests[owner_id], int(before.pools[pool].settings["patience_s"])
            assert before.by_capacity(pool, request), f"{owner_id} got the hold of {pool}: {before.blocked(pool, request)}"
            assert not before.hold(pool, request), f"{owner_id} got the hold of {pool}, its way is being cleared already"
            assert request.submitted_ms <= self.world.clock.now_ms() - patience_s * 1000

    @rule()
    def go_on(self) -> None:
        self._do("", lambda: self.world.ledger.resume_unfinished(self.world.workspace))

    @rule()
    def finish(self) -> None:
        def through() -> None:
            for _ in range(1000):
                if not self.world.ledger.resume_unfinished(self.world.workspace):
                    return
            raise AssertionError("it does not come to an end")

        self._do("", through)
        assert not self.checker.snapshot.unfinished(), "finished, and something is left"
