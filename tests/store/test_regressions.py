"""What random histories found, each in as few words as it takes."""

from __future__ import annotations

import json

from app.store.ledger import Ledger, Limits
from app.store.scripts import Client
from tests.world import World


class OneCall(Ledger):
    """A ledger whose caller dies before it goes on with what is left."""

    def _finish(self, workspace: str) -> None:
        pass


def test_who_comes_to_stand_before_the_owner_of_a_hold_is_granted_before_him(world: World) -> None:
    world.pool(gpu=3, settings={"patience_s": 2})
    world.policy("large")
    world.policy("small", reserved={"gpu": 1})
    holder = world.submit("small", gpu=1)
    large = world.submit("large", gpu=3)
    world.pass_time(2)
    small = world.submit("small", gpu=1)
    assert [hold.request for hold in world.view().holds] == [large.id]
    assert world.status(large, small) == ["queued", "queued"]
    world.release(holder)  # the small one is now in share, and so before the owner of the hold
    assert world.status(large, small) == ["queued", "allocated"]


def test_the_owner_of_a_hold_is_granted_although_an_earlier_hold_kept_him_before(world: World) -> None:
    world.pool(gpu=4, settings={"patience_s": 2})
    world.policy()
    first, second = world.submit(gpu=3), world.submit(gpu=1)
    large = world.submit(gpu=4)
    world.pass_time(2)
    kept = world.submit(gpu=2)
    world.release(first)
    assert world.status(large, kept) == ["queued", "queued"]
    other = world.submit(gpu=3, preemption_class=9)  # before the owner, who keeps nobody before him
    world.cancel(large)
    assert world.status(other, kept) == ["allocated", "queued"]
    world.pass_time(2)
    assert [hold.request for hold in world.view().holds] == [kept.id]
    world.release(other)
    assert world.status(kept) == ["allocated"]
    world.release(second)


def test_newcomers_at_both_ends_of_a_lane_do_not_hide_that_the_rest_has_to_move(world: World) -> None:
    world.pool(gpu=1)
    world.policy("a")
    world.policy("z")
    world.submit("a", gpu=1)
    waits, moves = world.submit("a", gpu=1), world.submit("z", gpu=1)
    everybody, world.ledger = world.ledger, OneCall(world.client, world.clock, Limits(chunk=1))
    world.policy("z", priority=3)  # dies when the lane of `a` has been looked at
    first, last = (world.submit("z", gpu=1, preemption_class=rank) for rank in (9, 1))
    world.ledger = everybody
    while world.ledger.advance(world.workspace):
        pass
    assert world.queue() == [first.id, moves.id, last.id, waits.id]


def test_a_policy_parted_while_its_queue_is_brought_in_line_leaves_nobody_in_it(client: Client) -> None:
    world = World(client, chunk=1)
    for name in ("p", "q"):
        world.pool(name, gpu=1)
        world.policy("other", pool=name)
        world.policy(pool=name)
    holders = [world.submit("other", gpu=1), world.submit("other", gpu=1)]
    for _ in range(3):
        world.submit(gpu=1)
    shut_out = {"priority": 0, "group": "", "reserved": "", "limit": "gpu=0", "weight": 1}
    assert world.call("policy_set", op="1", pool="p", component="orchestrator/t", **shut_out).fields["more"] == "1"
    world.call("policy_delete", op="2", pool="p", component="orchestrator/t")
    world.call("release", held=json.dumps([[holders[1].id, "2", "succeeded"]]))  # one of them leaves through q meanwhile
    world.ledger.delete_policy("test", "p", "orchestrator/t")
    assert client.exists("pk:{test}:pool:p:queue") == 0
