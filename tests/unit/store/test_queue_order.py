"""The total order of a queue: share, rank, age, id; in both disciplines and both orders, on pages."""

from __future__ import annotations

import pytest

from app.domain.models import Request
from app.store.connection import RedisClient
from tests.properties.counted_scripts import BUDGET, CountedScripts
from tests.support.world import World


def queue_names(world: World, **requests: Request) -> list[str]:
    """Return the queue by names."""
    by_id = {request.id: name for name, request in requests.items()}
    return [by_id[each] for each in world.queue()]


def grants_in_turn(world: World, holder: Request, **requests: Request) -> list[str]:
    """Release the holder again and again, and return the order of grants."""
    order, waiting = [], dict(requests)
    while waiting:
        world.release(holder)
        name = next(name for name, each in waiting.items() if world.get(each).status == "allocated")
        order.append(name)
        holder = waiting.pop(name)
    return order


def test_priority_before_age_and_age_inside_a_priority(world: World) -> None:
    world.pool(gpu=1)
    for name, priority in (("low", 1), ("high", 9), ("top", 99)):
        world.policy(name, priority=priority)
    a = world.submit("top", gpu=1)
    waiting = {"l1": world.submit("low", gpu=1), "l2": world.submit("low", gpu=1), "h1": world.submit("high", gpu=1)}
    assert queue_names(world, **waiting) == ["h1", "l1", "l2"]
    world.policy("low", priority=50)
    assert queue_names(world, **waiting) == ["l1", "l2", "h1"]
    assert grants_in_turn(world, a, **waiting) == ["l1", "l2", "h1"]


def test_a_class_ranks_within_a_priority(world: World) -> None:
    world.pool(gpu=1)
    world.policy("a", priority=5)
    world.policy("b", priority=6)
    holder = world.submit("a", gpu=1)
    waiting = {f"a{each}": world.submit("a", gpu=1, preemption_class=each) for each in (5, 0, 10, 7)}
    waiting["b0"] = world.submit("b", gpu=1, preemption_class=0)
    assert queue_names(world, **waiting) == ["b0", "a10", "a7", "a5", "a0"]
    assert grants_in_turn(world, holder, **waiting) == ["b0", "a10", "a7", "a5", "a0"]


def test_in_discipline_classes_the_class_ranks_before_the_priority(world: World) -> None:
    world.pool(gpu=1, settings={"discipline": "classes"})
    world.policy("a", priority=0)
    world.policy("b", priority=9999)
    holder = world.submit("a", gpu=1)
    waiting = {
        f"{component}{each}": world.submit(component, gpu=1, preemption_class=each) for each in (0, 5, 10) for component in "ab"
    }
    assert queue_names(world, **waiting) == ["b10", "a10", "b5", "a5", "b0", "a0"]
    assert grants_in_turn(world, holder, **waiting) == ["b10", "a10", "b5", "a5", "b0", "a0"]


def test_in_share_before_borrowing_and_older_first(world: World) -> None:
    world.pool("p", gpu=8)
    for team in ("red", "blue"):
        world.policy(team, priority=10, reserved={"gpu": 4}, limit={"gpu": 8})
    r1 = world.submit("red", gpu=2)
    world.submit("red", gpu=2)
    b1, _ = (world.submit("blue", gpu=2, preemptible=False) for _ in range(2))
    waiting = {"r3": world.submit("red", gpu=2), "r4": world.submit("red", gpu=2), "b3": world.submit("blue", gpu=2)}
    assert queue_names(world, **waiting) == ["r3", "r4", "b3"]
    world.release(b1)
    assert world.status(*waiting.values()) == ["queued", "queued", "allocated"]
    world.release(r1)
    assert world.status(*waiting.values()) == ["allocated", "queued", "allocated"]


def test_in_share_goes_before_a_higher_rank_unless_priority_goes_first(world: World) -> None:
    world.pool(gpu=4)
    world.policy("owner", priority=1, reserved={"gpu": 2})
    world.policy("rich", priority=9)
    holder = world.submit("rich", gpu=4)
    waiting = {"rich": world.submit("rich", gpu=4), "owner": world.submit("owner", gpu=2), "over": world.submit("owner", gpu=3)}
    assert queue_names(world, **waiting) == ["owner", "rich", "over"]
    world.update_pool(settings={"order": "priority_first"})
    assert queue_names(world, **waiting) == ["rich", "owner", "over"]
    world.release(holder)
    assert world.status(*waiting.values()) == ["allocated", "queued", "queued"]


def test_within_a_rank_the_share_counts_even_if_priority_goes_first(world: World) -> None:
    world.pool(gpu=4, settings={"order": "priority_first"})
    world.policy("owner", priority=3, reserved={"gpu": 2})
    world.policy("other", priority=3)
    holder = world.submit("other", gpu=4)
    waiting = {"other": world.submit("other", gpu=4), "owner": world.submit("owner", gpu=2)}
    assert queue_names(world, **waiting) == ["owner", "other"]
    world.release(holder)
    assert world.status(*waiting.values()) == ["queued", "allocated"]


def test_a_request_without_share_keys_is_never_in_share(world: World) -> None:
    world.pool(gpu=4, licence=1)
    world.policy("a", reserved={"gpu": 2})
    holder = world.submit("a", licence=1)
    waiting = {"none": world.submit("a", licence=1), "share": world.submit("a", gpu=1, licence=1)}
    assert queue_names(world, **waiting) == ["share", "none"]
    world.release(holder)
    assert world.status(*waiting.values()) == ["queued", "allocated"]


def test_every_share_key_asked_has_to_fit_and_neutral_ones_do_not_count(world: World) -> None:
    world.pool(gpu=4, tpu=4, licence=1)
    world.policy("a", reserved={"gpu": 2, "tpu": 1})
    world.submit("a", licence=1)
    waiting = {
        "tpu2": world.submit("a", gpu=1, tpu=2, licence=1), "gpu3": world.submit("a", gpu=3, licence=1),
        "fits": world.submit("a", gpu=2, tpu=1, licence=1), "gpu1": world.submit("a", gpu=1, licence=1),
    }  # fmt: skip
    assert queue_names(world, **waiting) == ["fits", "gpu1", "tpu2", "gpu3"]


def test_fixed_work_looks_at_the_fixed_part_of_the_share(world: World) -> None:
    world.pool(gpu=4, licence=1)
    world.policy("a", reserved={"gpu": 2})
    world.policy("b", limit={"gpu": 4})
    world.submit("a", gpu=2)
    world.submit("b", licence=1, gpu=2)
    waiting = {
        "preemptible": world.submit("a", gpu=1),
        "fixed": world.submit("a", gpu=2, preemptible=False),
        "b": world.submit("b", gpu=1),
    }
    assert queue_names(world, **waiting) == ["fixed", "preemptible", "b"]


def test_a_lane_changes_sides_with_its_policys_use(world: World) -> None:
    world.pool(gpu=4)
    world.policy("a", priority=1, reserved={"gpu": 2})
    world.policy("b", priority=9)
    small = world.submit("a", gpu=1)
    world.submit("b", gpu=3)
    waiting = {"b": world.submit("b", gpu=2), "a2": world.submit("a", gpu=2)}
    assert queue_names(world, **waiting) == ["b", "a2"]
    world.release(small)
    assert queue_names(world, **waiting) == ["a2", "b"]
    world.submit("a", gpu=1)
    assert queue_names(world, **waiting) == ["b", "a2"]


@pytest.mark.parametrize("order", ["share_first", "priority_first"])
@pytest.mark.parametrize("priority", [0, 4041, 9999])
def test_the_smallest_difference_in_age_counts_at_every_priority(world: World, order: str, priority: int) -> None:
    world.pool(gpu=8, settings={"order": order})
    world.policy(priority=priority)
    holder, _ = world.submit(gpu=8), world.submit(gpu=9)
    waiting = {str(gpu): world.submit(gpu=gpu) for gpu in (7, 6, 5)}
    assert queue_names(world, **waiting) == ["7", "6", "5"]
    world.release(holder)
    assert world.status(*waiting.values()) == ["allocated", "queued", "queued"]


def test_a_change_of_discipline_ranks_every_member_of_a_lane_again(world: World) -> None:
    world.pool(gpu=1)
    world.policy("a", priority=9999)
    world.policy("b", priority=0)
    world.submit("a", gpu=1)
    waiting = {f"a{each}": world.submit("a", gpu=1, preemption_class=each) for each in (10, 5, 0)}
    waiting["b9"] = world.submit("b", gpu=1, preemption_class=9)
    assert queue_names(world, **waiting) == ["a10", "a5", "a0", "b9"]
    world.update_pool(settings={"discipline": "classes"})
    assert queue_names(world, **waiting) == ["a10", "b9", "a5", "a0"]
    world.update_pool(settings={"discipline": "reserved"})
    assert queue_names(world, **waiting) == ["a10", "a5", "a0", "b9"]


@pytest.mark.backends("fake", "embedded")  # the pages are cut in Lua, and each case reads many
@pytest.mark.parametrize("discipline", ["reserved", "classes"])
@pytest.mark.parametrize("order", ["share_first", "priority_first"])
def test_pages_of_any_size_join_to_the_whole_queue(world: World, order: str, discipline: str) -> None:
    world.pool(gpu=8, settings={"order": order, "discipline": discipline})
    world.policy("a", priority=5, reserved={"gpu": 2})
    world.policy("b", priority=5)
    world.policy("c", priority=9999, reserved={"gpu": 3})
    world.submit("b", gpu=8)
    asks = [(component, gpu, each) for gpu in (1, 2, 4) for each in (5, 10, 0) for component in "abc"]
    sent = [world.submit(component, gpu=gpu, preemption_class=each).id for component, gpu, each in asks]
    whole = world.queue()
    assert sorted(whole) == sorted(sent)
    for size in (1, 2, 5):
        pages, after = world.ledger.list_queue(world.workspace, "p", None, size)
        while after is not None:
            page, after = world.ledger.list_queue(world.workspace, "p", after, size)
            pages += page
        assert pages == whole


@pytest.mark.backends("fake", "embedded")
@pytest.mark.parametrize("order", ["share_first", "priority_first"])
@pytest.mark.parametrize("in_share", [20, 60])
def test_a_page_ends_with_the_work_budget(client: RedisClient, order: str, in_share: int) -> None:
    world = World(client)
    world.pool(gpu=1, mcpu=1000, settings={"order": order})
    world.policy("a", priority=5, reserved={"mcpu": 100 + in_share})
    world.policy("b", priority=5)
    world.submit("b", gpu=1)
    world.submit_all([world.request_spec("a", gpu=1, mcpu=101 + number % 80) for number in range(160)])
    world.submit_all([world.request_spec("b", gpu=1)] * 10)
    whole = world.queue()
    assert len(whole) == 170
    world.ledger._scripts = scripts = CountedScripts(client)
    assert world.queue() == whole
    uncounted = min(in_share, 32)  # the first waiters of the lanes in share: the count begins after them
    assert scripts.steps["list_queue"] < 20 * (BUDGET + uncounted)


def test_the_sorted_set_itself_shows_the_order_of_rank_and_age(world: World) -> None:
    world.pool(gpu=1)
    world.policy("a", priority=0)
    world.policy("b", priority=9999)
    world.submit("a", gpu=1)
    a, b, c = world.submit("a", gpu=1), world.submit("b", gpu=1), world.submit("a", gpu=1)
    key = "pk:{test}:pool:p:queue"
    assert world.client.zrange(key, 0, 9) == [b.id, a.id, c.id]
    assert world.client.zscore(key, a.id) == (9999 * 11 + 5) * 2**36 + 2
