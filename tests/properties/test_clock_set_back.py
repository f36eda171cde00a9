"""Random histories in which the clock is set back and forward: deadlines lie no further ahead than they can, sums agree."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.domain.errors import Refusal
from app.domain.models import Request
from app.store.connection import RedisClient
from app.store.keys import key
from tests.support.audit_findings import findings
from tests.support.world import World

HOUR_S = 3600
EXAMPLES = int(os.environ.get("HISTORIES") or 0) or 40
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from((None, 5, 60, 86_400)), st.sampled_from((None, 10, 600))),
        st.tuples(st.sampled_from(("heartbeat", "poll", "release", "preempt")), st.integers(0, 9), st.just(None)),
        st.tuples(st.just("advance"), st.sampled_from((1, 7, 61, HOUR_S)), st.just(None)),
        st.tuples(st.just("set_back"), st.sampled_from((3, 61, HOUR_S)), st.just(None)),
        st.tuples(st.just("clean_up"), st.just(None), st.just(None)),
    ),
    min_size=3,
    max_size=25,
)


class History:
    """A workspace with one pool, and what happens in it."""

    def __init__(self, client: RedisClient, chunk: int) -> None:
        client.flushall()
        self.world, self.requests = World(client, chunk=chunk), list[Request]()
        self.world.pool(gpu=3, settings={"grace_s": 30, "patience_s": 60})
        self.world.policy()
        self.world.policy("u", priority=5)

    def do(self, name: str, value: Any, ttl_s: int | None) -> None:
        """Do one step; a refusal of a request that has ended is an answer."""
        if name == "submit":
            fields = {"lease_s": value, "queue_ttl_s": ttl_s, "walltime_s": 100 if value == 5 else None}
            component = "u" if len(self.requests) % 3 == 2 else "t"
            self.requests.append(self.world.submit(component, gpu=1, **fields))
        elif name == "advance":
            self.world.clock.advance(value)
        elif name == "set_back":
            self.world.clock.set_back(value)
        elif name == "clean_up":
            self.world.pass_time(0)
        elif self.requests:
            self._act(name, self.world.get(self.requests[value % len(self.requests)]))

    def _act(self, name: str, request: Request) -> None:
        try:
            if name == "poll":
                self.world.get(request, poll=True)
            elif name == "preempt" and request.component == "t" and request.status == "allocated":
                waiters = [each for each in self.requests if each.component == "u" and self.world.status(each) == ["queued"]]
                if waiters:
                    self.world.preempt(waiters[0], request)
            elif name in ("heartbeat", "release") and request.fence:
                getattr(self.world, name)(request)
        except Refusal:
            pass

    def clean_up(self) -> None:
        """Clean up until nothing is left to do."""
        for _ in range(200):
            counts = self.world.ledger.clean_up(self.world.workspace)
            if not (counts.times_left or counts.expired_leases or counts.expired_waiters):
                return
        raise AssertionError("the cleanup does not come to an end")


@settings(max_examples=EXAMPLES, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, chunk=st.sampled_from((2, 200)))
def test_no_deadline_lies_further_ahead_than_it_can(client: RedisClient, steps: list[tuple[str, Any, Any]], chunk: int) -> None:
    history = History(client, chunk)
    history.clean_up()
    for step in [*steps, ("set_back", HOUR_S, None)]:
        history.do(*step)
    history.clean_up()  # this may end a pass that began before the clock was set back
    history.clean_up()
    world = history.world
    latest_ms = {request.id: world.clock.now_ms() + 1000 for request in history.requests}
    for name, field in {"leases": "lease_s", "waiting": "queue_ttl_s"}.items():
        for id_, end_ms in world.client.zscan_iter(key(name, world.workspace)):
            seconds = getattr(world.get(id_), field)
            assert end_ms <= latest_ms[id_] + 1000 * seconds if seconds else end_ms == 2**53 - 1, (name, id_)
    for id_, end_ms in world.client.zscan_iter(key("pool_walltime_ends", world.workspace, "p")):
        assert end_ms <= latest_ms[id_] + 100_000
    for id_, deadline_ms in world.client.zscan_iter(key("preemption_deadlines", world.workspace)):
        assert deadline_ms <= latest_ms[id_] + 30_000
    assert findings(world) == []
    held = [each for each in map(world.get, history.requests) if each.status in ("allocated", "preempting") and each.lease_s]
    world.clock.advance(86_402)
    history.clean_up()
    assert [each.id for each in held if (now := world.get(each)).fence == each.fence and now.status == "allocated"] == []
