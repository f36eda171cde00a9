"""Short reasons, and whether anything is different."""

from __future__ import annotations

from app.domain.explanations import WaitReason
from app.service.dashboard_queries import DIGEST_TTL_S, HISTORY_TTL_S, MAX_HISTORIES, DashboardQueries
from app.service.usage_history import UsageHistories
from app.store.queue_status import QueueStatusStore
from app.store.usage_samples import UsageSampleStore
from tests.support.world import World


class Hand:
    """A clock of the process that is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def dashboard_queries(world: World, hand: Hand | None = None) -> DashboardQueries:
    histories = UsageHistories(UsageSampleStore(world.client, 60, 10, world.clock), world.ledger)
    return DashboardQueries(QueueStatusStore(world.client, world.clock), world.ledger, histories, hand or Hand())


def test_reasons_are_the_verdicts_of_the_rules(world: World) -> None:
    world.pool("p", gpu=4)
    world.policy("a", pool="p", limit={"gpu": 3})
    world.policy("b", pool="p")
    runs = world.submit("a", gpu=3)
    over, short = world.submit("a", gpu=1), world.submit("b", gpu=2)
    reasons = dashboard_queries(world).list_reasons(world.workspace, "p", [over.id, short.id, runs.id, "0" * 20])
    assert {request: reason.verdict for request, reason in reasons.items()} == {
        over.id: WaitReason.OVER_LIMIT,
        short.id: WaitReason.NO_CAPACITY,
    }
    assert reasons[short.id].sentence == "it needs 2 gpu, and 1 of 4 is free"
    assert dashboard_queries(world).list_reasons(world.workspace, "other", [over.id]) == {}


def test_a_digest_differs_when_anything_of_these_pools_does(world: World) -> None:
    world.pool("p", gpu=4)
    world.pool("other", gpu=4)
    look, digests = dashboard_queries(world, hand := Hand()), []

    def digest(*pools: str) -> str:
        hand.now_s += DIGEST_TTL_S
        return look.get_digest(world.workspace, pools)

    digests.append(digest("p"))
    world.policy("a", pool="p")
    digests.append(digest("p"))
    world.submit("a", gpu=1)
    digests.append(digest("p"))
    world.policy("a", pool="p", priority=2)
    digests.append(digest("p"))
    digests.append(digest("p", "other"))
    digests.append(digest("p", "gone"))
    assert len(set(digests)) == len(digests)
    before = digest("p")
    world.policy("b", pool="other")
    assert digest("p") == before, "another pool is no matter"


def test_simultaneous_reads_share_one_query(world: World) -> None:
    world.pool("p", gpu=4)
    look = dashboard_queries(world, hand := Hand())
    before = look.get_digest(world.workspace, ["p"])
    world.policy("a", pool="p")
    assert look.get_digest(world.workspace, ["p"]) == before
    hand.now_s += DIGEST_TTL_S
    assert look.get_digest(world.workspace, ["p"]) != before


def test_the_last_hours_are_read_once_for_all_readers(world: World) -> None:
    world.pool("p", gpu=4)
    look, notes = dashboard_queries(world, hand := Hand()), UsageSampleStore(world.client, 60, 10, world.clock)

    def noted() -> int:
        world.clock.advance(60)
        assert notes.sample_usage(world.workspace, "p")
        return len(look.get_history(world.workspace, "p").times_ms)

    assert look.get_history(world.workspace, "p").times_ms == ()
    assert noted() == 1, "that there is nothing is not kept"
    assert noted() == 1
    hand.now_s += HISTORY_TTL_S
    assert look.get_history(world.workspace, "p").times_ms[-1] == world.clock.now_ms()


def test_no_more_histories_are_kept_than_there_is_room_for(world: World) -> None:
    look, notes = dashboard_queries(world, Hand()), UsageSampleStore(world.client, 60, 10, world.clock)
    for number in range(MAX_HISTORIES + 1):
        world.pool(f"p{number}", gpu=1)
        notes.sample_usage(world.workspace, f"p{number}")
        assert len(look.get_history(world.workspace, f"p{number}").times_ms) == 1
    world.clock.advance(60)
    notes.sample_usage(world.workspace, "p0")
    assert len(look.get_history(world.workspace, "p0").times_ms) == 2, "it had to go"
